"""Train a network of MXNet on Horovod, with timestamps and with many more, for mxnet_overhead.py.

    horovodrun -np 2 python benchmarks/mxnet_overhead_training.py OUT LAYERS STAMPED PAIRS

Steps alternate, in the same random order on all ranks: in one step of a pair the timestamps are
requested STAMPED more times. Writes OUT/result.json on rank 0: for every pair, how much longer the
one step takes than the other.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any, Dict

import horovod.mxnet as hvd
import mxnet as mx
from mxnet import autograd, gluon

from stallscope.collector.recorder.mxnet.gradient_probe import Answer, GradientProbe
from stallscope.collector.recorder.mxnet.mxnet_engine import Handles, Moment
from stallscope.mxnet import StepLogger

BATCH, WIDTH = 32, 32
WARM = 20
UNITS = ("us", "cpu_us")
Taken = Dict[str, float]


def network(layers: int) -> Any:
    net = gluon.nn.HybridSequential()
    for _ in range(layers):
        net.add(gluon.nn.Dense(WIDTH, activation="relu", in_units=WIDTH))
    net.add(gluon.nn.Dense(10, in_units=WIDTH))
    net.initialize()
    return net


class MoreQueries:
    """Makes ``more`` further queries to the engine for each query of the recording."""

    def __init__(self) -> None:
        self.more = 0
        self._answers: list[Moment] = []
        ready, reduced = GradientProbe.ask_ready, GradientProbe.ask_reduced

        def ask_ready(probe: GradientProbe) -> Answer:
            self._also(probe, probe._last)
            return ready(probe)

        def ask_reduced(probe: GradientProbe) -> Moment:
            self._also(probe, probe._reduced)
            return reduced(probe)

        # For all recordings of this process, of which there is one.
        GradientProbe.ask_ready = ask_ready  # type: ignore[method-assign]
        GradientProbe.ask_reduced = ask_reduced  # type: ignore[method-assign]

    def _also(self, probe: GradientProbe, gradients: Handles) -> None:
        self._answers += [probe._ask(gradients) for _ in range(self.more)]

    def read(self) -> None:
        """Read the answers that are there, as the recording does on a separate thread."""
        ready, late = [], []
        for answer in self._answers:
            (ready if answer.is_there else late).append(answer)
        for answer in ready:
            answer.take()
        self._answers = late


def step(net: Any, trainer: Any, batch: Any) -> Taken:
    """Train a step; return its time on the clock, and the CPU time of all threads."""
    began = time.perf_counter_ns(), time.process_time_ns()
    with autograd.record():
        loss = net(batch).square().mean()
    loss.backward()
    trainer.step(BATCH)
    # Like a loss that is printed; otherwise the host runs far ahead of the engine.
    loss.asscalar()
    mx.nd.waitall()
    ended = time.perf_counter_ns(), time.process_time_ns()
    return {unit: (end - begin) / 1e3 for unit, begin, end in zip(UNITS, began, ended)}


def main() -> None:
    out = Path(sys.argv[1])
    layers, stamped, pairs = map(int, sys.argv[2:])
    hvd.init()
    net = network(layers)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.001})
    batches = iter([mx.nd.zeros((BATCH, WIDTH))] * (WARM + 2 * pairs))
    queries = MoreQueries()
    order, added = random.Random(1), {unit: [] for unit in UNITS}
    with StepLogger(out / "logs", trainer=trainer) as log:
        watched = iter(log.watch(batches))
        for _ in range(WARM):
            step(net, trainer, next(watched))
        for _ in range(pairs):
            taken = {}
            for queries.more in order.sample((0, stamped), 2):
                taken[queries.more] = step(net, trainer, next(watched))
                queries.read()
            for unit in UNITS:
                added[unit].append(taken[stamped][unit] - taken[0][unit])
    if hvd.rank() == 0:
        (out / "result.json").write_text(json.dumps(added))


if __name__ == "__main__":
    main()
