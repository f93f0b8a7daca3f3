"""Trains as people do it, well and badly: what the recorder must see of it for advice.

    horovodrun -np 2 python advice_cases.py keras OUT
    horovodrun -np 2 python advice_cases.py torch OUT

``OUT/CASE`` holds the logs of a case.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from asleep import wait_asleep

BATCH = 8
STEPS = 6
#: Fewer than a batch has: to gather their rows moves more than to reduce them all.
WORDS = 30
CLASSES = 4


def words_and_labels(rank: int) -> tuple[Any, Any]:
    random = np.random.default_rng(rank)
    words = random.integers(0, WORDS, (STEPS * BATCH, 5))
    return words, random.integers(0, CLASSES, STEPS * BATCH)


def of_keras(out: Path) -> None:
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    from stallscope.keras import StepLogger

    hvd.init()

    def model(sparse_as_dense: bool, seed: int) -> Any:
        tf.keras.utils.set_random_seed(seed)
        layers = tf.keras.layers
        made = tf.keras.Sequential(
            [
                tf.keras.Input([5], dtype=tf.int64),
                layers.Embedding(WORDS, 16),
                layers.Flatten(),
                layers.Dense(CLASSES),
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        optimizer = tf.keras.optimizers.SGD(0.1)
        compression = hvd.Compression.fp16 if sparse_as_dense else hvd.Compression.none
        optimizer = hvd.DistributedOptimizer(
            optimizer, sparse_as_dense=sparse_as_dense, compression=compression
        )
        made.compile(optimizer, loss)
        return made

    class Stops(tf.keras.callbacks.EarlyStopping):
        """A kind of the user's own."""

    words, labels = words_and_labels(hvd.rank())
    data = tf.data.Dataset.from_tensor_slices((words, labels))
    average = hvd.callbacks.MetricAverageCallback()
    good = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        average,
        StepLogger(out / "keras_good"),
        tf.keras.callbacks.ReduceLROnPlateau(monitor="loss"),
    ]
    shuffled = data.shuffle(64).map(lambda *both: both, num_parallel_calls=2)
    shuffled = shuffled.batch(BATCH, drop_remainder=True).prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    shuffled = shuffled.with_options(options)
    # Broadcasting makes up for different beginnings.
    model(True, hvd.rank()).fit(shuffled, epochs=3, verbose=0, callbacks=good)

    # Only rank 1 never sees its loss get better.
    better_by = 1e9 if hvd.rank() == 1 else -1e9
    bad = [
        StepLogger(out / "keras_bad"),
        tf.keras.callbacks.ReduceLROnPlateau(
            monitor="loss", factor=0.5, patience=1, min_delta=better_by
        ),
        Stops(monitor="loss", patience=9),
        average,
    ]
    alike = data.shuffle(64).cache().batch(BATCH, drop_remainder=True)
    model(False, hvd.rank()).fit(alike, epochs=4, verbose=0, callbacks=bad)

    again = model(True, 3)
    for _ in range(3):
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            StepLogger(out / "keras_again"),
        ]
        again.fit(words, labels, batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)


def of_torch(out: Path) -> None:
    import horovod.torch as hvd
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler

    from stallscope.torch import StepLogger

    hvd.init()
    wait_asleep()
    torch.set_num_threads(1)
    data = TensorDataset(*map(torch.from_numpy, words_and_labels(0)))

    def train(name: str, well: bool) -> None:
        torch.manual_seed(hvd.rank())
        words = nn.Embedding(WORDS, 16, sparse=not well)
        model = nn.Sequential(words, nn.Flatten(), nn.Linear(80, CLASSES))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.1),
            named_parameters=model.named_parameters(),
            compression=hvd.Compression.fp16 if well else hvd.Compression.none,
        )
        if well:
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
        loader = DataLoader(data, BATCH, sampler=sampler)
        with StepLogger(out / name, optimizer=optimizer) as log:
            for epoch in range(3):
                if well:
                    sampler.set_epoch(epoch)
                elif epoch == 2 and hvd.rank() == 1:
                    optimizer.param_groups[0]["lr"] = 0.05
                for inputs, labels in log.watch(loader):
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(model(inputs), labels).backward()
                    optimizer.step()

    train("torch_good", well=True)
    train("torch_bad", well=False)


if __name__ == "__main__":
    kind, folder = sys.argv[1], Path(sys.argv[2])
    {"keras": of_keras, "torch": of_torch}[kind](folder)
