"""Conditions on a run, as people type them, ``input.excess>20%``: docs/conditions.md explains them."""

from .condition import Condition, Outcome, parse

__all__ = ["Condition", "Outcome", "parse"]
