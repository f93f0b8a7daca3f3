"""Split advice into what to do, the line to copy, and when not to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Lines to copy end a clause; other code is part of its sentence.
_LINE = re.compile(r": `([^`\n]+)`\.(?:\s+|$)")
_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")
_CLAUSE = re.compile(r"(: |; )")


@dataclass(frozen=True)
class Step:
    """A step to take: ``action`` stands out, ``line`` is to be copied; the others may be empty."""

    action: str
    #: Why, before the action.
    reason: str = ""
    #: More on the action, in the same sentence.
    detail: str = ""
    line: str = ""
    caveat: str = ""


def steps_of(advice: str) -> list[Step]:
    """Split advice into its steps: one for each line to copy, or one for all of it."""
    # An unpaired backtick ends no line.
    pieces = [advice] if advice.count("`") % 2 else _LINE.split(advice)
    if len(pieces) == 1:
        first, *others = _SENTENCES.split(advice.strip())
        return [_step([], first, "", " ".join(others))]
    return [*_with_lines(pieces)]


def _with_lines(pieces: list[str]) -> Iterator[Step]:
    """Make steps from texts with a line between each two of them."""
    *reason, action = _SENTENCES.split(pieces[0])
    for line, after in zip(pieces[1::2], pieces[2::2], strict=True):
        # All of the last text is a caveat; the last sentence of others is the next action.
        sentences = _SENTENCES.split(after) if after else []
        last = after == pieces[-1]
        caveat = sentences if last else sentences[:-1]
        yield _step(reason, action, line, " ".join(caveat).strip())
        reason, action = [], "" if last else sentences[-1]


def _step(reason: list[str], sentence: str, line: str, caveat: str) -> Step:
    action, *rest = _CLAUSE.split(sentence, maxsplit=1)
    detail = "".join(rest)
    end = ":" if line else ""
    return Step(
        action if detail else action + end,
        " ".join(reason),
        detail + end * bool(detail),
        line,
        caveat,
    )
