"""One piece of advice."""

from __future__ import annotations

from dataclasses import dataclass


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

    def __str__(self) -> str:
        line = f": `{self.line}`" if self.line else ""
        return " ".join(part for part in (f"{self.what}{line}.", self.gain, self.unless) if part)


def in_words(*pieces: Advice) -> str:
    """Several pieces as the text of a finding."""
    return " ".join(map(str, pieces))
