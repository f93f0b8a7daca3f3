"""Trains a network of MXNet on Horovod, with stamps and without them in turns: mxnet_overhead.py's.

    horovodrun -np 2 python benchmarks/mxnet_overhead_training.py OUT LAYERS STAMPED PAIRS STEPS

Blocks of STEPS steps take turns, in an order that all ranks draw alike. In a block with stamps the
engine is asked for them STAMPED times. Writes OUT/result.json, of rank 0: for every pair of blocks, what
the median step of the one has taken more than that of the other.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Iterable

import horovod.mxnet as hvd
import mxnet as mx
from mxnet import autograd, gluon

from stallscope.collector.recorder.mxnet.probes import GradientProbe
from stallscope.mxnet import StepLogger

BATCH, WIDTH = 32, 32
UNITS = ("us", "processors_us")


def network(layers: int) -> Any:
    net = gluon.nn.HybridSequential()
    for _ in range(layers):
        net.add(gluon.nn.Dense(WIDTH, activation="relu", in_units=WIDTH))
    net.add(gluon.nn.Dense(10, in_units=WIDTH))
    net.initialize()
    return net


def asked_several_times(probe: GradientProbe, trainer: Any, stamped: int) -> None:
    """Have the engine asked by so many probes where one is; only its own times are taken."""
    more = [GradientProbe(trainer) for _ in range(stamped - 1)]
    once = probe.ask

    def ask(reduced: bool = False) -> None:
        for one in more:
            one.ask(reduced)
        once(reduced)

    probe.ask = ask  # type: ignore[method-assign]  # for this one recording only


def block(net: Any, trainer: Any, batches: Iterable[Any]) -> dict[str, float]:
    """What a step has taken: by the clock, and of the processors in all threads."""
    taken: dict[str, list[float]] = {unit: [] for unit in UNITS}
    before = time.perf_counter_ns(), time.process_time_ns()
    for batch in batches:
        with autograd.record():
            loss = net(batch).square().mean()
        loss.backward()
        trainer.step(BATCH)
        # As where the loss is told now and then: without it the host runs ahead of the engine for ever.
        loss.asscalar()
        mx.nd.waitall()
        now = time.perf_counter_ns(), time.process_time_ns()
        for unit, at, last in zip(UNITS, now, before):
            taken[unit].append((at - last) / 1e3)
        before = now
    return {unit: median(found) for unit, found in taken.items()}


def main() -> None:
    out = Path(sys.argv[1])
    layers, stamped, pairs, steps = map(int, sys.argv[2:])
    hvd.init()
    net = network(layers)
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.001})
    data = mx.nd.zeros((BATCH * steps, WIDTH)).asnumpy()
    batches = gluon.data.DataLoader(gluon.data.ArrayDataset(data), BATCH)
    order, added = random.Random(1), {unit: [] for unit in UNITS}
    with StepLogger(out / "logs", trainer=trainer) as log:
        # Recording begins with its first loop.
        block(net, trainer, log.watch(batches))
        asked_several_times(log._recording._probe, trainer, stamped)
        for _ in range(pairs):
            found = {}
            for arm in order.sample(("none", "stamps"), 2):
                found[arm] = block(net, trainer, log.watch(batches) if arm == "stamps" else batches)
            for unit in UNITS:
                added[unit].append(found["stamps"][unit] - found["none"][unit])
    if hvd.rank() == 0:
        (out / "result.json").write_text(json.dumps(added))


if __name__ == "__main__":
    main()
