"""Where and when the programs of test_hangs.py stop, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FATAL_STEP = 30
#: One training after the other. Nothing ends the last one's halt.
PLACES = ("loader", "backward", "other", "collective")


def goes_on(out: Path, place: str) -> Path:
    """Return the pipe whose reader waits until a test opens it, too."""
    return out / f"{place}.pipe"


@dataclass(frozen=True)
class Halt:
    """Rank 1 stops in one step, at one place.

    Args:
        rank: the own rank.
        place: one of ``PLACES``.
        out: the folder with the pipes; logs go to its folder of the place's name.
    """

    rank: int
    place: str
    out: Path

    def is_here(self, place: str, step: int) -> bool:
        return self.rank == 1 and (place, step) == (self.place, FATAL_STEP)

    @property
    def pipe(self) -> Path:
        return goes_on(self.out, self.place)

    @property
    def logs(self) -> Path:
        return self.out / self.place
