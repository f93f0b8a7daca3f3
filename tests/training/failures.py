"""Train while processes or disks fail: for test_failures.py.

    horovodrun -np 2 python failures.py OUT     a slow step, no folder, a full disk, and a kill
    python failures.py OUT                      an exception that nothing catches

``OUT/ended-RANK.txt`` has the times at which a rank's steps ended. The slow step ends when the test has
written ``OUT/seen``.
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

#: A step that waits for its batch while several flushes pass.
SLOW_STEP = 30
SLOW_SECONDS = 5.0
#: The size of a log at which the disk of rank 1 is full.
FULL_BYTES = 4000


class NotesEnds(tf.keras.callbacks.Callback):
    """Write the end of each batch to disk at once."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        os.write(self._descriptor, f"{batch} {time.monotonic_ns()}\n".encode())


class Crashes(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 9:
            raise RuntimeError("crashed on purpose")


def batches(count: int, pause: float, seen: Path | None = None) -> Iterator[Any]:
    """Yield batches; the slow one does not come before the test has seen the steps before it."""
    random = np.random.default_rng(5)
    inputs, labels = random.random((16, 8), np.float32), random.integers(0, 4, 16)
    for step in range(count):
        is_slow = seen is not None and step == SLOW_STEP
        time.sleep(SLOW_SECONDS if is_slow else pause)
        while is_slow and not seen.exists():
            time.sleep(0.01)
        yield inputs, labels


def fit(count: int, callbacks: list[Any], data: Any) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(64), tf.keras.layers.Dense(4)])
    optimizer = tf.keras.optimizers.SGD(0.01)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hvd.DistributedOptimizer(optimizer) if RANKED else optimizer, loss)
    # Workers would fetch the slow batch many steps ahead.
    model.fit(data, steps_per_epoch=count, callbacks=callbacks, verbose=0, workers=0)


def crash(out: Path) -> None:
    # The flushing thread would come too late.
    logger = StepLogger(out / "logs", flush_seconds=60.0)
    # Not from a generator: TensorFlow may wait for one forever when the interpreter ends.
    inputs, labels = next(batches(1, pause=0.0))
    data = tf.data.Dataset.from_tensors((inputs, labels)).repeat()
    fit(100, [logger, Crashes()], data)


def fail(out: Path) -> None:
    """Train with a slow step, without a folder, on a full disk, and until a kill."""
    fit(60, [StepLogger(out / "slow")], batches(60, 0.01, out / "seen"))

    no_folder = out / "a file" / "logs" if hvd.rank() == 1 else out / "folder"
    divide("no folder")
    fit(20, [StepLogger(no_folder)], batches(20, 0.0))

    divide("full disk")
    with full_disk(FULL_BYTES) if hvd.rank() == 1 else contextlib.nullcontext():
        # Where a start takes long, lines of the machine alone would fill the disk.
        logger = StepLogger(out / "full", flush_seconds=0.1, machine=False)
        fit(300, [logger], batches(300, 0.002))

    divide("killed")
    notes = NotesEnds(out / f"ended-{hvd.rank()}.txt")
    fit(100_000, [StepLogger(out / "killed"), notes], batches(100_000, 0.01))


def divide(title: str) -> None:
    """Divide a rank's output into parts."""
    print(f"-- {title} --", file=sys.stderr, flush=True)


if __name__ == "__main__":
    if RANKED:
        hvd.init()
        fail(Path(sys.argv[1]))
    else:
        crash(Path(sys.argv[1]))
