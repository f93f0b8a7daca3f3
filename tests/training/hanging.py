"""The places at which the programs of test_hangs.py hang."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FATAL_STEP = 30
#: One training after the other. The last one hangs until its processes end.
PLACES = ("loader", "backward", "other", "collective")


def pipe_of(out: Path, place: str) -> Path:
    """Return the pipe that ends a hang: its reader waits until a test opens it for writing."""
    return out / f"{place}.pipe"


@dataclass(frozen=True)
class Halt:
    """Rank 1 hangs in one step, at one place.

    Args:
        rank: of this process.
        place: one of ``PLACES``.
        out: the folder with the pipes; ``out/PLACE`` is for logs.
    """

    rank: int
    place: str
    out: Path

    def is_here(self, place: str, step: int) -> bool:
        return self.rank == 1 and (place, step) == (self.place, FATAL_STEP)

    @property
    def pipe(self) -> Path:
        return pipe_of(self.out, self.place)

    @property
    def logs(self) -> Path:
        return self.out / self.place
