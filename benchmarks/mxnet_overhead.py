"""Measure what the timestamps add to a step of MXNet on Horovod, on the clock and in CPU time.

The log counts the training thread's queries to the engine (see host_part.py). The engine's own work
for a timestamp shows only here.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import Figure, at_most
from paired import over_processes
from peers import ROOT, output_of

PROGRAM = ROOT / "benchmarks" / "mxnet_overhead_training.py"
ENVIRONMENT = ROOT / ".venv-mxnet"
RANKS, PROCESSES = 2, 4
#: Dense layers before the last; each has two gradients.
LAYERS = 80
#: How many more times the timestamps are requested: one request adds less than the noise of steps.
STAMPED = 200
#: Pairs of steps.
PAIRS = 120


def figures(quick: bool) -> list[Figure]:
    with TemporaryDirectory() as folder:
        outs = [Path(folder) / str(number) for number in range(1 if quick else PROCESSES)]
        runs = [trained(out, PAIRS // 4 if quick else PAIRS) for out in outs]
    figures = []
    for unit, name in (("us", "per step"), ("cpu_us", "in CPU time per step")):
        by = over_processes([[time / STAMPED for time in run[unit]] for run in runs])
        what = f"MXNet, {RANKS} ranks, {2 * (LAYERS + 1)} gradients: timestamps add {name}"
        figures.append(at_most(what, by.value, "µs", 50, interval=by.interval))
    return figures


def trained(out: Path, pairs: int) -> dict[str, list[float]]:
    """Return how much longer steps with more timestamps take than the steps next to them."""
    out.mkdir()
    words = ["horovodrun", "-np", str(RANKS), "python", str(PROGRAM), str(out)]
    numbers = [LAYERS, STAMPED, pairs]
    output_of([*words, *map(str, numbers)], ENVIRONMENT, {"OMP_NUM_THREADS": "1"})
    result: dict[str, list[float]] = json.loads((out / "result.json").read_text())
    return result
