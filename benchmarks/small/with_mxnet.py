"""A small training of MXNet, recorded: OUT LAYERS STEPS, and "no-stages"."""

import sys

import mxnet as mx
from mxnet import autograd, gluon

from stallscope.mxnet import StepLogger

out, layers, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WIDTH, BATCH = 64, 32
net = gluon.nn.HybridSequential()
for _ in range(layers):
    net.add(gluon.nn.Dense(WIDTH, activation="relu", in_units=WIDTH))
net.add(gluon.nn.Dense(10, in_units=WIDTH))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001})
data = gluon.data.ArrayDataset(mx.nd.zeros((BATCH * steps, WIDTH)).asnumpy())
batches = gluon.data.DataLoader(data, BATCH)
with StepLogger(out, trainer=trainer, stages="no-stages" not in sys.argv) as log:
    for batch in log.watch(batches):
        with autograd.record():
            loss = net(batch).square().mean()
        loss.backward()
        trainer.step(BATCH)
        # As with a loss that is printed at times; otherwise the host runs far ahead of the engine.
        loss.asscalar()
