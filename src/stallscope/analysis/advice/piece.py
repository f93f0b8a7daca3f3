"""One piece of advice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """A recommended change.

    ``line`` is a line of Python or shell to paste; names such as ``dataset``, ``model`` and
    ``optimizer`` stand for the user's own.
    """

    what: str
    line: str = ""
    #: The gain, and the exceptions, as whole sentences.
    gain: str = ""
    unless: str = ""

    def __str__(self) -> str:
        line = f": `{self.line}`" if self.line else ""
        return " ".join(part for part in (f"{self.what}{line}.", self.gain, self.unless) if part)


def in_words(pieces: Iterable[Advice]) -> str:
    """Join advice into the text of a finding."""
    return " ".join(map(str, pieces))
