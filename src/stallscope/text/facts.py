"""Write recorded facts for people."""

from __future__ import annotations

from collections.abc import Mapping


def as_text(value: object) -> str:
    """Write a fact's value; empty if it was not recorded."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {as_text(own)}" for name, own in value.items())
    if isinstance(value, list):
        return ", ".join(as_text(own) for own in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
    return str(value)
