"""Suggest the known name that a user may have misspelt."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Iterable


def did_you_mean(written: str, known: Iterable[str], otherwise: str) -> str:
    """Return ``did you mean "NAME"?`` with the closest name, or another hint if none is close.

    Args:
        written: what the user has written.
        known: the names that exist.
        otherwise: the hint if none of them is close.
    """
    near = get_close_matches(written, list(known), n=1)
    return f'did you mean "{near[0]}"?' if near else otherwise
