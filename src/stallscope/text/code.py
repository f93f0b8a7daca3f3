"""Find code in sentences: advice has it between backticks."""

from __future__ import annotations


def parts(text: str) -> list[tuple[str, bool]]:
    """Split a sentence into words and code; unpaired backticks are words."""
    split = text.split("`")
    if len(split) % 2 == 0:
        return [(text, False)]
    return [(part, bool(at % 2)) for at, part in enumerate(split) if part]
