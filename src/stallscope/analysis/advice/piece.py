"""One piece of advice."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Advice:
    """Something to change.

    ``line`` is Python, or a line for a shell, that can be pasted as it is; names such as ``dataset``,
    ``model`` and ``optimizer`` stand for the user's own.
    """

    what: str
    line: str = ""
    #: What it gains at most, and when not to do it: whole sentences.
    gain: str = ""
    unless: str = ""
    #: Whether the run's facts say that it is done already: then it is not given.
    done: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        line = f": `{self.line}`" if self.line else ""
        return " ".join(part for part in (f"{self.what}{line}.", self.gain, self.unless) if part)


def undone(*pieces: Advice) -> tuple[Advice, ...]:
    """Leave out the pieces that the run follows already."""
    return tuple(piece for piece in pieces if not piece.done)


def in_words(*pieces: Advice) -> str:
    """Join the pieces that are still to be done into the text of a finding."""
    return " ".join(map(str, undone(*pieces)))
