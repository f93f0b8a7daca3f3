"""Trainings to which something bad happens.

    horovodrun -np 2 python failures.py killed OUT      trains until somebody kills it
    horovodrun -np 2 python failures.py disk OUT        folders and disks that cannot be written
    python failures.py crash OUT                        an exception that nobody catches

Each rank writes down itself, in ``OUT/ended-RANK.txt``, when its steps ended: what its log must hold.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from case_runner import full_disk

from stallscope.keras import StepLogger

RANKED = "HOROVOD_RANK" in os.environ
if RANKED:
    import horovod.tensorflow.keras as hvd

#: A step that waits for its batch so long that several flushes come meanwhile.
SLOW_STEP = 30
SLOW_SECONDS = 5.0
#: Bytes of a log after which the disk of rank 1 is full.
FULL_BYTES = 4000


class WritesDown(tf.keras.callbacks.Callback):
    """The ends of all batches, on disk at once."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        os.write(self._descriptor, f"{batch} {time.monotonic_ns()}\n".encode())


class Crashes(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 9:
            raise RuntimeError("crashed on purpose")


def batches(count: int, pause: float, slow_step: int | None = None) -> Iterator[Any]:
    random = np.random.default_rng(5)
    inputs, labels = random.random((16, 8), np.float32), random.integers(0, 4, 16)
    for step in range(count):
        time.sleep(SLOW_SECONDS if step == slow_step else pause)
        yield inputs, labels


def train(count: int, callbacks: list[Any], pause: float = 0.01, slow: int | None = None) -> None:
    fit(count, callbacks, batches(count, pause, slow))


def fit(count: int, callbacks: list[Any], data: Any) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(64), tf.keras.layers.Dense(4)])
    optimizer = tf.keras.optimizers.SGD(0.01)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hvd.DistributedOptimizer(optimizer) if RANKED else optimizer, loss)
    # Without workers: their queue would fetch the slow batch many steps ahead.
    model.fit(data, steps_per_epoch=count, callbacks=callbacks, verbose=0, workers=0)


def killed(out: Path) -> None:
    own = out / f"ended-{hvd.rank()}.txt"
    train(100_000, [StepLogger(out / "logs"), WritesDown(own)])


def crash(out: Path) -> None:
    # Far too seldom for the flushing thread to come in time.
    logger = StepLogger(out / "logs", flush_seconds=60.0)
    # No generator: TensorFlow may wait for one for ever when the interpreter ends in the middle of it.
    inputs, labels = next(batches(1, pause=0.0))
    data = tf.data.Dataset.from_tensors((inputs, labels)).repeat()
    fit(100, [logger, WritesDown(out / "ended-0.txt"), Crashes()], data)


def disk(out: Path) -> None:
    """In one launch, one after the other: a slow step, no folder, and a disk that gets full."""
    train(60, [StepLogger(out / "slow")], slow=SLOW_STEP)

    no_folder = out / "a file" / "logs" if hvd.rank() == 1 else out / "folder"
    say("no folder")
    train(20, [StepLogger(no_folder)], pause=0.0)

    say("full disk")
    with full_disk(FULL_BYTES) if hvd.rank() == 1 else contextlib.nullcontext():
        train(300, [StepLogger(out / "full", flush_seconds=0.1)], pause=0.002)
    say("done")


def say(what: str) -> None:
    """Divides what the ranks print into parts."""
    print(f"-- {what} --", file=sys.stderr, flush=True)


def main() -> None:
    name, out = sys.argv[1:]
    if RANKED:
        hvd.init()
    {"killed": killed, "disk": disk, "crash": crash}[name](Path(out))


if __name__ == "__main__":
    main()
