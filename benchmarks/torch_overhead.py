"""Measure what StepLogger adds to a step of PyTorch, against traceml-ai and NVIDIA's detection.

The network has 20 gradients and then 160, because most of the cost is hooks on gradients.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import Figure, added, share_of
from paired import over_rounds
from peers import PEERS, ROOT, output_of

PROGRAM = ROOT / "benchmarks" / "torch_overhead_training.py"
#: Rounds by number of layers: fewer where steps take longer.
ROUNDS = {10: 14, 80: 5}
STEPS = 100


def figures(quick: bool) -> Iterator[Figure]:
    for layers, rounds in ROUNDS.items():
        yield from network_figures(layers, rounds // 4 if quick else rounds)


def network_figures(layers: int, rounds: int) -> list[Figure]:
    with TemporaryDirectory() as folder:
        out = Path(folder)
        words = ["traceml", "run", str(PROGRAM), "--logs-dir", str(out / "traceml"), "--args"]
        output_of([*words, folder, str(rounds), str(STEPS), str(layers)], PEERS, folder=out)
        result = json.loads((out / "result.json").read_text())
    steplogger, traceml, nvidia = (
        over_rounds(result["added_us"][arm]) for arm in ("steplogger", "traceml", "nvidia")
    )
    name = f"PyTorch, {result['gradients']} gradients: added per step"
    return [
        *added(name, steplogger, "traceml-ai", "traceml-ai", traceml, most=0.2),
        # It times only whole steps, on the CPU, and writes nothing.
        share_of(
            f"{name}, against NVIDIA's straggler detection",
            steplogger.value,
            "µs",
            "a section of nvidia-resiliency-ext",
            nvidia.value,
            interval=steplogger.interval,
            alternative_interval=nvidia.interval,
        ),
    ]
