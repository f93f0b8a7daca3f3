"""Small trainings of MXNet, recorded and with a bare tool (see turns.py)."""

from pathlib import Path
from typing import Any, Iterable

import mxnet as mx
from mxnet import autograd, gluon
from turns import BATCH, STAGES, WIDTH, Arms, Bare, Ruler, run

from stallscope.mxnet import StepLogger


def arms(layers: int, steps: int, ruler: Ruler) -> Arms:
    net = gluon.nn.HybridSequential()
    for _ in range(layers):
        net.add(gluon.nn.Dense(WIDTH, activation="relu", in_units=WIDTH))
    net.add(gluon.nn.Dense(10, in_units=WIDTH))
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001})
    data = gluon.data.ArrayDataset(mx.nd.zeros((BATCH * steps, WIDTH)).asnumpy())
    batches = gluon.data.DataLoader(data, BATCH)

    def train(batches: Iterable[Any]) -> None:
        for batch in batches:
            with autograd.record():
                loss = net(batch).square().mean()
            loss.backward()
            trainer.step(BATCH)
            # Like a loss that is printed; otherwise the host runs far ahead of the engine.
            loss.asscalar()

    def recorded(out: Path) -> None:
        with StepLogger(out, trainer=trainer, stages=STAGES) as log:
            train(ruler.loop(log.watch(batches)))

    def bare(tool: Bare) -> None:
        train(ruler.loop(tool.watch(batches)))

    return recorded, bare


run(arms, lambda ruler: ruler.time_loader(gluon.data.DataLoader))
