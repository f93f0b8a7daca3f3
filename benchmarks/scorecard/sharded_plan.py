"""The cells of the chapter on models that ranks share: how they train, and what is slow.

Standard library only: the trainings read it as well, in their own environment.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

from cells import DIMENSIONS, HOSTS, Cell, truth_path

#: How the ranks train, and what the page calls that.
TRAININGS = {
    "ddp": "DDP",
    "fsdp": "FSDP2",
    "hybrid": "HSDP",
    "tensor": "tensor parallel in FSDP2's replicas",
    "pipeline": "pipelines of four stages",
    "zero_3": "DeepSpeed, ZeRO 3",
    "experts": "an expert on each rank",
    "jax": "JAX, one process per rank",
    "jax_mesh": "JAX, replicas of two processes",
    "ddp_4_hosts": "DDP on four hosts",
    "fsdp_2_hosts": "FSDP2 on two hosts",
    "fsdp_4_hosts": "FSDP2 on four hosts",
    "hybrid_4_hosts": "HSDP, a replica on each of four hosts",
}
#: Those with JAX.
JAX = ("jax", "jax_mesh")
#: Numbers of ranks.
RANKS = (4, 8, 16)
#: Sizes of faults in percent of the clean step.
PERCENTS = (10, 30)
#: Likewise, how long a host's bytes of a step take over its slow link. A part of that is hidden.
PERCENTS_OF_LINKS = (60, 100)
#: The dimensions of a mesh in which ranks with the same place are a replica, or a stage.
REPLICAS = {"hybrid": "replicate", "tensor": "dp", "pipeline": "dp", "jax_mesh": "replica"}
STAGES = {"pipeline": "pp"}
#: Of a pipeline's step.
MICRO_BATCHES = 4
#: How long an expert takes for a token, forward and backward, and how many tokens each rank sends.
TOKEN_SECONDS, TOKENS = 1e-4, 128

#: Steps before the clean step is measured.
WARM_UP = 30

# Runs without a fault per repeat, beside the first one, which determines the size of the faults.
_CLEAN = 2
# A simulated device takes so long per step and rank: most of a step, whatever the ranks do on few cores.
_DEVICE_SECONDS = {4: 0.03, 8: 0.03, 16: 0.06}
# Stages wait for each other as well, so that a pipeline's step takes almost twice as long. Experts take
# their part of a step.
_SHARE_OF_DEVICE = {"pipeline": 0.6, "experts": 0.6}


def ranks_of(framework: str) -> tuple[int, ...]:
    """Return the numbers of ranks of a training."""
    if framework in HOSTS or framework == "experts":
        return (8,)
    return {"jax": (4, 8), "jax_mesh": (4,)}.get(framework, (8, 16))


def device_seconds(framework: str, ranks: int) -> float:
    """Return how long a rank waits for its device in each step."""
    return _DEVICE_SECONDS[ranks] * _SHARE_OF_DEVICE.get(framework, 1.0)


def cells_of(framework: str, ranks: int, percents: tuple[float, ...]) -> list[Cell]:
    """Return the cells of a launch."""
    return [
        cell
        for repeat in range(_repeats(framework, ranks))
        for cell in _repeat(framework, ranks, repeat, percents)
    ]


def _repeats(framework: str, ranks: int) -> int:
    """Return how often the cells are trained: once where that takes long."""
    once = ranks == max(RANKS) or framework in ("zero_3", "experts", *JAX, *HOSTS)
    return 1 if once else 2


def _repeat(framework: str, ranks: int, repeat: int, percents: tuple[float, ...]) -> list[Cell]:
    """Return a cell without a fault, then all faults in random order.

    Others without a fault are among them, so that disturbances affect all kinds alike.
    """
    place = (framework, ranks, repeat, 0)
    cells = [Cell(*place, *fault) for fault in _faults(framework, percents)]
    cells += [Cell(*place, number=number) for number in range(_CLEAN)]
    random.Random(f"{framework} {ranks} {repeat}").shuffle(cells)
    return [Cell(*place, synthetic=True), *cells]


def _faults(framework: str, percents: tuple[float, ...]) -> Iterator[tuple[str, str, float, str]]:
    """Yield the stage, the place, the size and the way of each fault of a training."""
    faults = [("compute", "one", "sleep"), ("input", "one", "sleep")]
    if framework == "experts":
        faults = [("routing", "one", "tokens"), ("routing", "rotating", "tokens")]
    elif framework in HOSTS:
        faults = [("compute", "one", "sleep"), ("link", "host", "rate")]
    for dimensions in (REPLICAS, STAGES):
        if framework in dimensions:
            faults.append(("compute", dimensions[framework], "sleep"))
    if framework in JAX:
        faults.append(("device", "one", "sleep"))
    for stage, who, way in faults:
        sizes = PERCENTS_OF_LINKS if stage == "link" else percents
        yield from ((stage, who, percent, way) for percent in sizes)


def kind_of(cell: Cell) -> str:
    """Return what is slow: rank, input, replica, stage, …, or nothing (clean)."""
    if cell.stage is None:
        return "clean"
    if cell.who in DIMENSIONS.get(cell.framework, ()):
        return "stage" if cell.who == STAGES.get(cell.framework) else "replica"
    if cell.who == "rotating":
        return "rotating"
    return "rank" if cell.stage == "compute" else cell.stage


def is_unknowable(kind: str, framework: str) -> bool:
    """Whether nothing recorded tells what is slow: a device of JAX, or the only link between hosts."""
    return kind == "device" or (kind == "link" and HOSTS[framework] == 2)


# -- the links of hosts ---------------------------------------------------------------------------

# Ranks ask for the links of a cell with this file, and wait until it is gone.
_ASKS = "asks-for-links"
_POLL_SECONDS = 0.02


def await_links(out: Path, cell: Cell) -> None:
    """Wait until the links of all hosts are as the cell needs them."""
    part = out / f"{_ASKS}.part"
    part.write_text(cell.name)
    part.rename(out / _ASKS)
    while (out / _ASKS).exists():
        time.sleep(_POLL_SECONDS)


def asking(out: Path) -> str | None:
    """Return the name of the cell whose ranks wait for links; None if none do."""
    return (out / _ASKS).read_text() if (out / _ASKS).exists() else None


def links_are_set(out: Path) -> None:
    """Let the ranks that wait continue."""
    (out / _ASKS).unlink(missing_ok=True)


def sent_path(out: Path, cell: Cell) -> Path:
    """Return where the bytes are that a host sends in each step of the cell's baseline."""
    return out / cell.baseline / "sent.json"


def link_mbit_s(out: Path, cell: Cell) -> float:
    """Return the rate of a link with which sending takes as long as the cell's fault."""
    sent = json.loads(sent_path(out, cell).read_text())["bytes"]
    step_ns = json.loads(truth_path(out / cell.baseline, 0).read_text())["step_ns"]
    return sent * 8 / (step_ns * cell.percent / 100) * 1e3
