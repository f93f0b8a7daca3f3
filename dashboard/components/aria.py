"""Attributes for screen readers."""

from __future__ import annotations

from typing import Any


def aria(**attributes: str) -> dict[str, Any]:
    """Turn ``label="Ranks"`` into a component's ``aria-label``, a name that Python lacks."""
    return {f"aria-{name}": value for name, value in attributes.items()}
