"""Code within sentences: advice has it between backticks."""

from __future__ import annotations


def parts(text: str) -> list[tuple[str, bool]]:
    """A sentence in its parts, and which of them are code; one whose backticks are no pairs is words."""
    split = text.split("`")
    if len(split) % 2 == 0:
        return [(text, False)]
    return [(part, bool(at % 2)) for at, part in enumerate(split) if part]
