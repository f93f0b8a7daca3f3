"""Conditions on a run, such as ``input.excess>20%``; see docs/conditions.md."""

from .condition import Condition, Outcome, parse

__all__ = ["Condition", "Outcome", "parse"]
