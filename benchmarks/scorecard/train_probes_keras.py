"""Train the probes chapter with TF-Keras and Horovod; probes.py starts it.

horovodrun -np 2 python benchmarks/scorecard/train_probes_keras.py PLAN OUT
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from pairs_launch import CLASSES, WIDTH, Pause
from probes_plan import BATCH, BATCHES_AHEAD, LAYERS, PROBE_EVERY, Device, Loader, Rank, Run
from train_pairs_keras import network, one_core_per_rank

from stallscope.keras import StepLogger


class Pauses(tf.keras.callbacks.Callback):
    """Pauses the training after every epoch."""

    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self._pause = pause

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._pause()


def data(loader: Loader, steps: int) -> tf.data.Dataset:
    """Make so many batches, as slowly as the loader says; ahead, and at once, with workers."""
    random = np.random.default_rng(1)
    pixels = random.random((steps * BATCH, WIDTH), np.float32)
    labels = random.integers(0, CLASSES, steps * BATCH)

    def load(number: np.int64) -> tuple[np.ndarray, np.ndarray]:
        samples = range(number * BATCH, (number + 1) * BATCH)
        for sample in samples:
            loader.read(sample, 0)
            loader.decode()
        return pixels[samples.start : samples.stop], labels[samples.start : samples.stop]

    def loaded(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x, y = tf.numpy_function(load, [number], (tf.float32, tf.int64))
        return tf.ensure_shape(x, (BATCH, WIDTH)), tf.ensure_shape(y, (BATCH,))

    at_once = loader.workers if loader.workers > 1 else None
    batches = tf.data.Dataset.range(steps).map(loaded, num_parallel_calls=at_once)
    if loader.workers:
        batches = batches.prefetch(2)
    options = tf.data.Options()
    # Otherwise TensorFlow adds prefetching where there is none.
    options.autotune.enabled = False
    if loader.workers:
        # Slow batches must not keep threads of the model.
        options.threading.private_threadpool_size = loader.workers
    return batches.with_options(options)


def train(run: Run, log_dir: Path, epochs: int, steps: int, pause: Pause, *, rank: int) -> None:
    """Train one run from the start, and pause after every epoch."""
    tf.keras.utils.set_random_seed(1)
    begin_together = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    log = StepLogger(log_dir, run_name=run.name, probe_input=BATCHES_AHEAD, probe_every=PROBE_EVERY)
    network(Device(), LAYERS).fit(
        data(run.loader(rank), steps),
        epochs=epochs,
        callbacks=[begin_together, log, Pauses(pause)],
        verbose=0,
    )


def main() -> None:
    plan, out = Path(sys.argv[1]), Path(sys.argv[2])
    hvd.init()
    one_core_per_rank()
    Rank(out, hvd.rank(), partial(train, rank=hvd.rank())).run(plan)


if __name__ == "__main__":
    main()
