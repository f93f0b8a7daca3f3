"""The cells of the chapter on models that ranks share: how they train, and which ranks are slow.

Standard library only: the trainings read it as well, in their own environment.
"""

from __future__ import annotations

import random

from cells import DIMENSIONS, Cell

#: How the ranks train, and what the page calls that.
TRAININGS = {
    "ddp": "DDP",
    "fsdp": "FSDP2",
    "hybrid": "HSDP",
    "tensor": "tensor parallel in FSDP2's replicas",
    "pipeline": "pipelines of four stages",
    "zero_3": "DeepSpeed, ZeRO 3",
}
#: Numbers of ranks.
RANKS = (8, 16)
#: Sizes of faults in percent of the clean step.
PERCENTS = (10, 30)
#: The dimensions of a mesh in which ranks with the same place are a replica, or a stage.
REPLICAS = {"hybrid": "replicate", "tensor": "dp", "pipeline": "dp"}
STAGES = {"pipeline": "pp"}
#: Of a pipeline's step.
MICRO_BATCHES = 4

#: Steps before the clean step is measured.
WARM_UP = 30

# Runs without a fault per repeat, beside the first one, which determines the size of the faults.
_CLEAN = 2
# A simulated device takes so long per step and rank: most of a step, whatever the ranks do on few cores.
_DEVICE_SECONDS = {8: 0.03, 16: 0.06}
# Stages wait for each other as well, so that a pipeline's step takes almost twice as long.
_SHARE_OF_PIPELINE = 0.6


def device_seconds(framework: str, ranks: int) -> float:
    """Return how long a rank waits for its device in each step."""
    share = _SHARE_OF_PIPELINE if framework == "pipeline" else 1.0
    return _DEVICE_SECONDS[ranks] * share


def cells_of(framework: str, ranks: int, percents: tuple[float, ...]) -> list[Cell]:
    """Return the cells of a launch."""
    return [
        cell
        for repeat in range(_repeats(framework, ranks))
        for cell in _repeat(framework, ranks, repeat, percents)
    ]


def _repeats(framework: str, ranks: int) -> int:
    """Return how often the cells are trained: once where that takes long."""
    return 1 if ranks == max(RANKS) or framework == "zero_3" else 2


def _repeat(framework: str, ranks: int, repeat: int, percents: tuple[float, ...]) -> list[Cell]:
    """Return a cell without a fault, then all faults in random order.

    Others without a fault are among them, so that disturbances affect all kinds alike.
    """
    place = (framework, ranks, repeat, 0)
    slow = [("compute", "one"), ("input", "one")]
    slow += [("compute", dims[framework]) for dims in (REPLICAS, STAGES) if framework in dims]
    cells = [
        Cell(*place, stage, who, percent, "sleep") for stage, who in slow for percent in percents
    ]
    cells += [Cell(*place, number=number) for number in range(_CLEAN)]
    random.Random(f"{framework} {ranks} {repeat}").shuffle(cells)
    return [Cell(*place, synthetic=True), *cells]


def kind_of(cell: Cell) -> str:
    """Return what is slow: rank, input, replica, stage, or nothing (clean)."""
    if cell.stage is None:
        return "clean"
    if cell.who in DIMENSIONS.get(cell.framework, ()):
        return "stage" if cell.who == STAGES.get(cell.framework) else "replica"
    return "input" if cell.stage == "input" else "rank"
