"""Trains one model in turns: with nothing, with StepLogger, and with traceml-ai, for torch_overhead.py.

    traceml run benchmarks/torch_overhead_training.py --args OUT ROUNDS STEPS LAYERS
    python benchmarks/torch_overhead_training.py OUT ROUNDS STEPS LAYERS

A block is a few dozen steps of one arm; the arms come in another order every round. What StepLogger has
put into the model is gone after its block. What traceml-ai has put into torch stays, and looks whether
it is inside ``trace_step``; its sampling thread runs through all arms: its cost comes out too low by
both. Where it is not installed its arm is left out.

Writes OUT/result.json: for every arm and round the median step in milliseconds; and OUT/logs.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from stallscope.torch import StepLogger

try:
    import traceml_ai
except ImportError:
    traceml_ai = None

WIDTH = 64
BATCH = 32
# In its first eight steps StepLogger learns which gradient comes last.
SKIPPED = 12
WARM_UP_ROUNDS = 3


class Training:
    """A small network on batches that are there already: its step takes a millisecond or a few."""

    def __init__(self, layers: int, steps: int, out: Path) -> None:
        torch.manual_seed(1)
        parts: list[torch.nn.Module] = []
        for _ in range(layers):
            parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
        self._model = torch.nn.Sequential(*parts)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        # The class whose fetching traceml-ai times.
        self._loader = DataLoader([torch.randn(BATCH, WIDTH)] * steps, batch_size=None)
        self._logs = out / "logs"

    def block(self, arm: str) -> float:
        """The median step of one pass over the batches, in milliseconds."""
        if arm == "steplogger":
            with StepLogger(self._logs, optimizer=self._optimizer, model=self._model) as log:
                began = self._pass(log.watch(self._loader), nullcontext)
        elif arm == "traceml":
            began = self._pass(self._loader, lambda: traceml_ai.trace_step(self._model))
        else:
            began = self._pass(self._loader, nullcontext)
        laps = [b - a for a, b in zip(began, began[1:])][SKIPPED:]
        return statistics.median(laps) / 1e6

    def _pass(
        self, batches: Iterable[torch.Tensor], around: Callable[[], AbstractContextManager]
    ) -> list[int]:
        """When every step began."""
        began = []
        for batch in batches:
            began.append(time.perf_counter_ns())
            with around():
                self._optimizer.zero_grad()
                self._model(batch).square().mean().backward()
                self._optimizer.step()
        return began


def main() -> None:
    out = Path(sys.argv[1])
    rounds, steps, layers = map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    arms = ["none", "steplogger"]
    if traceml_ai is not None:
        # As its documentation has it for loops of one's own.
        traceml_ai.init(mode="auto")
        arms.append("traceml")
    training = Training(layers, steps, out)
    order = random.Random(7)
    step_ms: dict[str, list[float]] = {arm: [] for arm in arms}
    for _ in range(WARM_UP_ROUNDS + rounds):
        for arm in order.sample(arms, len(arms)):
            step_ms[arm].append(training.block(arm))
    result = {
        "gradients": 2 * layers,
        "step_ms": {arm: own[WARM_UP_ROUNDS:] for arm, own in step_ms.items()},
    }
    (out / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
