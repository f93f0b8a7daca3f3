"""The cells of the scorecard's real half: the fault of each, its ranks, size and way.

Standard library only: the trainings read cells as well, in their own environments.
"""

from __future__ import annotations

import itertools
import json
import random
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

STAGES = ("input", "compute", "other")
WHO = ("one", "all", "rotating")
WAYS = ("sleep", "spin")
FRAMEWORKS = ("keras", "torch")

# Machines drift: a baseline is for the cells of the next minutes, not of a whole hour.
_CELLS_PER_BASELINE = 24

_CELL = "cell.json"


@dataclass(frozen=True)
class Cell:
    """One training, with one fault or none."""

    framework: str
    ranks: int
    repeat: int
    #: Cells of one group of a repeat run after each other in one launch and share a baseline.
    group: int
    #: None if nothing is injected.
    stage: str | None = None
    who: str = "none"
    #: Percent of the clean step, as requested; the injected size is measured.
    percent: float = 0.0
    way: str | None = None
    synthetic: bool = False
    #: Distinguishes clean cells of one group.
    number: int = 0

    @property
    def name(self) -> str:
        """Return the cell's name, which is also its folder's."""
        if self.synthetic:
            return self.baseline
        if self.stage is None:
            return f"{self._group}-clean-{self.number}"
        return f"{self._group}-{self.stage}-{self.who}-{self.percent:g}-{self.way}"

    @property
    def baseline(self) -> str:
        """Return the name of this cell's baseline."""
        return f"{self._group}-baseline"

    @property
    def baseline_cell(self) -> Cell:
        return Cell(self.framework, self.ranks, self.repeat, self.group, synthetic=True)

    @property
    def _group(self) -> str:
        return f"{self.framework}-{self.ranks}-r{self.repeat:02d}-g{self.group:02d}"

    @property
    def seed(self) -> int:
        """Return the seed that every rank uses."""
        return zlib.crc32(self.name.encode())

    @property
    def rank(self) -> int | None:
        """Return the faulty rank, if there is a single one."""
        return self.seed % self.ranks if self.who == "one" else None

    def turns(self, steps: int) -> list[int | None]:
        """Return, per step, the rank with the fault: None is all of them, -1 is none."""
        if self.who == "none":
            return [-1] * steps
        if self.who == "rotating":
            draw = random.Random(self.seed)
            return [draw.randrange(self.ranks) for _ in range(steps)]
        return [self.rank] * steps


def grid(
    framework: str,
    ranks: int,
    *,
    stages: tuple[str, ...] = STAGES,
    who: tuple[str, ...] = WHO,
    percents: tuple[float, ...],
    ways: tuple[str, ...] = WAYS,
    repeats: int,
) -> list[Cell]:
    """Return all cells of one framework and number of ranks, in training order.

    Faults come in random order, so that disturbances affect all kinds alike. A group starts with
    its baseline; one clean cell is in its middle and one at its end.
    """
    cells = []
    for repeat in range(repeats):
        faults = list(itertools.product(stages, who, percents, ways))
        random.Random(f"{framework} {ranks} {repeat}").shuffle(faults)
        for group, first in enumerate(range(0, len(faults), _CELLS_PER_BASELINE)):
            place = (framework, ranks, repeat, group)
            faulty = [Cell(*place, *fault) for fault in faults[first : first + _CELLS_PER_BASELINE]]
            clean = [Cell(*place, number=number) for number in range(2)]
            half = len(faulty) // 2
            cells += [
                Cell(*place, synthetic=True),
                *faulty[:half],
                clean[0],
                *faulty[half:],
                clean[1],
            ]
    return cells


def write_cells(path: Path, cells: list[Cell], steps: int) -> None:
    path.write_text(json.dumps({"steps": steps, "cells": [asdict(cell) for cell in cells]}))


def read_cells(path: Path) -> tuple[list[Cell], int]:
    """Read the cells that a launch must train, and the steps of each."""
    content = json.loads(path.read_text())
    return [Cell(**cell) for cell in content["cells"]], content["steps"]


def write_cell(folder: Path, cell: Cell) -> None:
    (folder / _CELL).write_text(json.dumps(asdict(cell)))


def trained_cells(out: Path) -> list[Cell]:
    """Return all cells that every rank has finished, by name."""
    cells = [Cell(**json.loads(path.read_text())) for path in sorted(out.glob(f"*/{_CELL}"))]
    return [cell for cell in cells if is_trained(out, cell)]


def truth_path(folder: Path, rank: int) -> Path:
    """Return where a rank writes what it has injected, in the folder of the cell's logs."""
    return folder / f"injected-{rank:05d}.json"


def is_trained(out: Path, cell: Cell) -> bool:
    """Return whether every rank has finished the cell: its truth is written last."""
    return all(truth_path(out / cell.name, rank).exists() for rank in range(cell.ranks))
