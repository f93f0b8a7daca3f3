"""What the timestamps add to a step of MXNet on Horovod, by the clock and of the CPU cores.

On the training thread the engine is asked for them, which the log counts (see host_part.py); but the
engine computes meanwhile, and what it does for a timestamp itself is nowhere else to be seen.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import Figure, at_most
from paired import over_processes
from peers import ROOT, ran

PROGRAM = ROOT / "benchmarks" / "mxnet_overhead_training.py"
ENVIRONMENT = ROOT / ".venv-mxnet"
RANKS, PROCESSES = 2, 4
#: Dense layers besides the last; each has two gradients.
LAYERS = 80
#: How many times more the timestamps are asked for, as what they add once is less than steps differ by.
STAMPED = 200
#: Pairs of steps.
PAIRS = 200


def figures(quick: bool) -> list[Figure]:
    with TemporaryDirectory() as folder:
        outs = [Path(folder) / str(number) for number in range(1 if quick else PROCESSES)]
        runs = [trained(out, PAIRS // 4 if quick else PAIRS) for out in outs]
    found = []
    for unit, name in (("us", "per step"), ("processors_us", "of the processors' time per step")):
        by = over_processes([[one / STAMPED for one in run[unit]] for run in runs])
        what = f"MXNet, {RANKS} ranks, {2 * (LAYERS + 1)} gradients: stamps add {name}"
        found.append(at_most(what, by.value, "µs", 50, interval=by.interval))
    return found


def trained(out: Path, pairs: int) -> dict[str, list[float]]:
    """What steps with more timestamps have taken more than those beside them."""
    out.mkdir()
    words = ["horovodrun", "-np", str(RANKS), "python", str(PROGRAM), str(out)]
    numbers = [LAYERS, STAMPED, pairs]
    ran([*words, *map(str, numbers)], ENVIRONMENT, {"OMP_NUM_THREADS": "1"})
    result: dict[str, list[float]] = json.loads((out / "result.json").read_text())
    return result
