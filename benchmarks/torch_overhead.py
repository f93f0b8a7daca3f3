"""Measure what recording costs per step of a PyTorch loop: none, StepLogger and traceml-ai, step by
step.

The network has 20 gradients and then 160, as hooks on gradients are what costs.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import Figure, added
from paired import over_rounds
from peers import PEERS, ROOT, ran

PROGRAM = ROOT / "benchmarks" / "torch_overhead_training.py"
#: Rounds by number of layers: steps of many layers take longer, so they get fewer rounds.
ROUNDS = {10: 24, 80: 8}
STEPS = 100


def figures(quick: bool) -> list[Figure]:
    found = []
    for layers, rounds in ROUNDS.items():
        found += of_network(layers, rounds // 4 if quick else rounds)
    return found


def of_network(layers: int, rounds: int) -> list[Figure]:
    with TemporaryDirectory() as folder:
        out = Path(folder)
        words = ["traceml", "run", str(PROGRAM), "--logs-dir", str(out / "traceml"), "--args"]
        ran([*words, folder, str(rounds), str(STEPS), str(layers)], PEERS, folder=out)
        result = json.loads((out / "result.json").read_text())
    own, other = (over_rounds(result["added_us"][arm]) for arm in ("steplogger", "traceml"))
    what = f"PyTorch, {result['gradients']} gradients"
    return added(f"{what}: added per step", own, "traceml-ai", "traceml-ai", other, most=0.2)
