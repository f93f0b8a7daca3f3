"""One piece of advice."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Advice:
    """A recommended change.

    ``line`` is a line of Python or shell to paste; names such as ``dataset``, ``model`` and
    ``optimizer`` stand for the user's own.
    """

    what: str
    line: str = ""
    #: The gain, and when not to do it, as whole sentences.
    gain: str = ""
    unless: str = ""
    #: Whether the run's facts show that it is done already; then it is left out.
    done: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        line = f": `{self.line}`" if self.line else ""
        return " ".join(part for part in (f"{self.what}{line}.", self.gain, self.unless) if part)


def undone(*pieces: Advice) -> tuple[Advice, ...]:
    """Leave out advice that the run follows already."""
    return tuple(piece for piece in pieces if not piece.done)


def in_words(*pieces: Advice) -> str:
    """Join the advice that is still to be done into the text of a finding."""
    return " ".join(map(str, undone(*pieces)))
