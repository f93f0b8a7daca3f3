"""Attributes for people who do not see the page."""

from __future__ import annotations

from typing import Any


def aria(**attributes: str) -> dict[str, Any]:
    """``aria(label="Ranks")`` as keywords of a component: their names have a dash, Python's cannot."""
    return {f"aria-{name}": value for name, value in attributes.items()}
