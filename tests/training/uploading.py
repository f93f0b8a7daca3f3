"""Train until OUT/stop exists, and upload logs to an MLflow run meanwhile.

    horovodrun -np 2 python uploading.py keras OUT             to the run MLFLOW_RUN_ID
    horovodrun -np 2 python uploading.py torch OUT RUN_ID      to a run that StepLogger gets
    python uploading.py measured OUT RUN_ID                    train a little, and measure loaders

Each rank writes a line per epoch into ``OUT/rank-RANK.txt``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from asleep import wait_asleep

from stallscope.collector.recorder import subprocesses

STEPS = 20
#: The length of a batch or a step: it keeps the logs of a long training small.
PAUSE_SECONDS = 0.02


def batches(steps: int | None) -> Iterator[Any]:
    random = np.random.default_rng(3)
    inputs, labels = random.random((16, 8), np.float32), random.integers(0, 4, 16)
    for _ in iter(int, 1) if steps is None else range(steps):
        time.sleep(PAUSE_SECONDS)
        yield inputs, labels


def note(out: Path, rank: int, epoch: int) -> None:
    with (out / f"rank-{rank}.txt").open("a") as file:
        file.write(f"{epoch}\n")


def train_keras(out: Path) -> None:
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf
    from horovod.tensorflow import broadcast_object

    from stallscope.keras import StepLogger

    hvd.init()

    class Stops(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            note(out, hvd.rank(), epoch)
            # All ranks must stop after the same epoch.
            self.model.stop_training = broadcast_object((out / "stop").exists())

    model = tf.keras.Sequential([tf.keras.layers.Dense(16), tf.keras.layers.Dense(4)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), loss)
    callbacks = [StepLogger(out / "logs"), Stops()]
    model.fit(
        batches(None),
        steps_per_epoch=STEPS,
        epochs=10_000,
        callbacks=callbacks,
        verbose=0,
        workers=0,
    )


def train_torch(out: Path, run_id: str) -> None:
    import horovod.torch as hvd
    import torch

    from stallscope.torch import StepLogger

    hvd.init()
    wait_asleep()
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 4)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.01), model.named_parameters()
    )
    with StepLogger(out / "logs", optimizer=optimizer, mlflow_run_id=run_id) as log:
        for epoch in range(10_000):
            for inputs, labels in log.watch(list(batches(STEPS))):
                time.sleep(PAUSE_SECONDS)
                optimizer.zero_grad()
                outputs = model(torch.from_numpy(inputs))
                torch.nn.functional.cross_entropy(outputs, torch.from_numpy(labels)).backward()
                optimizer.step()
            note(out, hvd.rank(), epoch)
            if hvd.broadcast_object((out / "stop").exists()):
                break


def measured(out: Path, run_id: str) -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from stallscope.torch import StepLogger, measure_input

    loader = DataLoader(TensorDataset(torch.rand(160, 8)), batch_size=16)
    measure_input(loader, 4)
    measure_input(loader, 5, log_dir=out / "logs")
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with StepLogger(out / "logs", optimizer=optimizer, mlflow_run_id=run_id) as log:
        for (inputs,) in log.watch(loader):
            optimizer.zero_grad()
            model(inputs).sum().backward()
            optimizer.step()
        measure_input(loader, 6)
    # This line is longer than the start by which logs of one name are compared.
    measure_input(iter(lambda: 0, 1), 60_000)
    while not (out / "stop").exists():
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    # The process that uploads has low priority: on a busy machine the last upload takes long.
    subprocesses._LAST_UPLOAD_SECONDS = 900.0
    kind, folder, *rest = sys.argv[1:]
    kinds = {"keras": train_keras, "torch": train_torch, "measured": measured}
    kinds[kind](Path(folder), *rest)
