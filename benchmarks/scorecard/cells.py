"""The cells of the scorecard's real half: which fault, on whom, how large, and how it is made.

Standard library only: the trainings read cells as well, in an environment of their own.
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

# Machines drift: a baseline serves the cells that follow it within minutes, not the whole hour.
_CELLS_PER_BASELINE = 24

_CELL = "cell.json"


@dataclass(frozen=True)
class Cell:
    """One training, with one fault or none."""

    framework: str
    ranks: int
    repeat: int
    #: Cells of one group of a repeat follow each other in one launch and share a baseline.
    group: int
    #: None where nothing is injected.
    stage: str | None = None
    who: str = "none"
    #: Of the clean step, asked for; what was injected is measured.
    percent: float = 0.0
    way: str | None = None
    synthetic: bool = False
    #: Tells clean cells of one group apart.
    number: int = 0

    @property
    def name(self) -> str:
        """Also the name of the cell's folder."""
        if self.synthetic:
            return self.baseline
        if self.stage is None:
            return f"{self._group}-clean-{self.number}"
        return f"{self._group}-{self.stage}-{self.who}-{self.percent:g}-{self.way}"

    @property
    def baseline(self) -> str:
        """The name of the cell that is this one's baseline."""
        return f"{self._group}-baseline"

    @property
    def _group(self) -> str:
        return f"{self.framework}-{self.ranks}-r{self.repeat:02d}-g{self.group:02d}"

    @property
    def seed(self) -> int:
        """What every rank draws the same random numbers from."""
        return zlib.crc32(self.name.encode())

    @property
    def rank(self) -> int | None:
        """The faulty rank, where it is one."""
        return self.seed % self.ranks if self.who == "one" else None

    def turns(self, steps: int) -> list[int | None]:
        """Per step, the rank that the fault is on: None is all of them, -1 is nobody."""
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
    """All cells of one framework and number of ranks, in the order in which they are trained.

    Faults come in random order, so that what the machine does besides hits all kinds alike. A group
    begins with its baseline; a clean cell stands in its middle, one more at its end.
    """
    cells = []
    for repeat in range(repeats):
        faults = list(itertools.product(stages, who, percents, ways))
        random.Random(f"{framework} {ranks} {repeat}").shuffle(faults)
        for group, first in enumerate(range(0, len(faults), _CELLS_PER_BASELINE)):
            place = (framework, ranks, repeat, group)
            own = [Cell(*place, *fault) for fault in faults[first : first + _CELLS_PER_BASELINE]]
            clean = [Cell(*place, number=number) for number in range(2)]
            half = len(own) // 2
            cells += [Cell(*place, synthetic=True), *own[:half], clean[0], *own[half:], clean[1]]
    return cells


def write_cells(path: Path, cells: list[Cell], steps: int) -> None:
    path.write_text(json.dumps({"steps": steps, "cells": [asdict(cell) for cell in cells]}))


def read_cells(path: Path) -> tuple[list[Cell], int]:
    """The cells that a launch is to train, and the steps of each."""
    content = json.loads(path.read_text())
    return [Cell(**cell) for cell in content["cells"]], content["steps"]


def write_cell(folder: Path, cell: Cell) -> None:
    (folder / _CELL).write_text(json.dumps(asdict(cell)))


def trained_cells(out: Path) -> list[Cell]:
    """All cells that every rank has gone through, by name."""
    cells = [Cell(**json.loads(path.read_text())) for path in sorted(out.glob(f"*/{_CELL}"))]
    return [cell for cell in cells if is_trained(out, cell)]


def truth_path(folder: Path, rank: int) -> Path:
    """Where a rank writes what it has injected, beside the cell's logs."""
    return folder / f"injected-{rank:05d}.json"


def is_trained(out: Path, cell: Cell) -> bool:
    """Whether every rank has gone through the cell: the truth is written last."""
    return all(truth_path(out / cell.name, rank).exists() for rank in range(cell.ranks))
