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

#: Trainings whose ranks form a mesh, row by row: the dimensions of its rows and columns.
DIMENSIONS = {
    "hybrid": ("replicate", "shard"),
    "tensor": ("dp", "tp"),
    "pipeline": ("pp", "dp"),
    "jax_mesh": ("replica", "shard"),
    "hybrid_4_hosts": ("replicate", "shard"),
}
#: Trainings whose ranks are on so many hosts of the lab, equally many on each.
HOSTS = {
    "ddp_4_hosts": 4,
    "fsdp_2_hosts": 2,
    "fsdp_4_hosts": 4,
    "hybrid_4_hosts": 4,
}
# The ranks that share a model, or a layer, and the stages of a pipeline.
_SHARDS, _PARTS, _STAGES_OF_PIPELINE = 4, 2, 4

# Machines drift: a baseline is for the cells of the next minutes, not of a whole hour.
_CELLS_PER_BASELINE = 24

_CELL = "cell.json"


def mesh_shape(framework: str, ranks: int) -> tuple[int, int]:
    """Return the rows and columns of a mesh."""
    if framework == "pipeline":
        return _STAGES_OF_PIPELINE, ranks // _STAGES_OF_PIPELINE
    if framework in HOSTS:
        return HOSTS[framework], ranks // HOSTS[framework]
    columns = _SHARDS if framework == "hybrid" else _PARTS
    return ranks // columns, columns


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

    @property
    def place(self) -> int | None:
        """Return the faulty ranks' place in the dimension of the mesh, if they have that in common."""
        if self.who not in DIMENSIONS.get(self.framework, ()):
            return None
        places = {self._places(rank)[self.who] for rank in range(self.ranks)}
        return self.seed % len(places)

    @property
    def host(self) -> int | None:
        """Return the place of the host that has the fault, if a host has it and not its ranks."""
        return self.seed % HOSTS[self.framework] if self.who == "host" else None

    def turns(self, steps: int) -> list[tuple[int, ...]]:
        """Return, per step, the ranks with the fault."""
        if self.who in ("none", "host"):
            return [()] * steps
        if self.who == "rotating":
            draw = random.Random(self.seed)
            return [(draw.randrange(self.ranks),) for _ in range(steps)]
        return [self.slow] * steps

    @property
    def slow(self) -> tuple[int, ...]:
        """Return the ranks that have the fault in every step."""
        if self.who in ("none", "rotating", "host"):
            return ()
        if self.who == "one":
            return (self.seed % self.ranks,)
        place = self.place
        everyone = range(self.ranks)
        return tuple(
            rank for rank in everyone if place is None or self._places(rank)[self.who] == place
        )

    def _places(self, rank: int) -> dict[str, int]:
        """Return a rank's place in each dimension of the mesh."""
        _, columns = mesh_shape(self.framework, self.ranks)
        return dict(zip(DIMENSIONS[self.framework], divmod(rank, columns)))


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
