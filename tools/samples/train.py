"""Train a small convolutional network with Horovod and the callback, with or without a fault.

    horovodrun -np 2 python tools/samples/train.py LOG_DIR [--name NAME] [--synthetic]
        [--fault FAULT [--fault-ms MS]] [--loader-spread SHARE] [--prefetch BATCHES]
        [--filters COUNT]

It records the sample runs in sample_logs/. Every fault is a sleep, so that its size is known.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from stallscope.keras import StepLogger, synthetic_like

BATCH = 32
# Filters of the first convolution; the length of a step depends on them.
FILTERS = 48

# Each fault with its default sleep per step.
FAULTS = {
    "none": 0.0,
    "slow-input-one-rank": 90.0,
    "slow-input-all-ranks": 90.0,
    "slow-compute-rank": 15.0,
    "busy-rank-0": 15.0,
}


def images(slow_seconds: float, spread: float = 0.0, prefetch: int = 2) -> tf.data.Dataset:
    """Return random images with light augmentation and a prefetch, as many users have them.

    Args:
        slow_seconds: the mean delay of each batch.
        spread: the share by which that delay varies.
        prefetch: the number of prefetched batches.
    """
    generator = np.random.default_rng(hvd.rank())
    pixels = generator.random((1024, 32, 32, 3), dtype=np.float32)
    labels = generator.integers(0, 10, 1024)
    data = tf.data.Dataset.from_tensor_slices((pixels, labels)).shuffle(256, seed=1).repeat()
    data = data.batch(BATCH, drop_remainder=True)
    data = data.map(lambda x, y: (tf.image.random_flip_left_right(x), y))
    if slow_seconds:
        data = data.map(lambda x, y: (slept(x, slow_seconds, spread), y))
    return data.prefetch(prefetch)


def slept(tensor: tf.Tensor, seconds: float, spread: float = 0.0) -> tf.Tensor:
    """Return the tensor after so many seconds, plus or minus a share of them."""
    generator = np.random.default_rng(hvd.rank())

    def sleep(value: np.ndarray) -> np.ndarray:
        time.sleep(seconds * (1.0 + spread * generator.uniform(-1.0, 1.0)))
        return value

    result = tf.numpy_function(sleep, [tensor], tensor.dtype)
    result.set_shape(tensor.shape)
    return result


class Slow(tf.keras.layers.Layer):
    """Passes its input on, after a sleep."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        # After a stopped gradient: the backward pass needs no derivative of sleeping.
        late = slept(tf.reduce_sum(inputs), self._seconds)
        return inputs + 0.0 * tf.stop_gradient(late)


class Busy(tf.keras.callbacks.Callback):
    """A callback that sleeps after every batch."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        time.sleep(self._seconds)


def network(slow_seconds: float, filters: int = FILTERS) -> tf.keras.Model:
    layers = [
        tf.keras.layers.Conv2D(filters, 3, activation="relu", padding="same"),
        tf.keras.layers.Conv2D(filters * 4 // 3, 3, strides=2, activation="relu", padding="same"),
        tf.keras.layers.Conv2D(filters * 2, 3, strides=2, activation="relu", padding="same"),
        tf.keras.layers.GlobalAveragePooling2D(),
        tf.keras.layers.Dense(10),
    ]
    slow = [Slow(slow_seconds)] if slow_seconds else []
    return tf.keras.Sequential(slow + layers, name="small_convnet")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log_dir")
    parser.add_argument("--name", help="the run's name")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--fault-ms", type=float, help="sleep per step")
    parser.add_argument(
        "--loader-spread",
        type=float,
        default=0.0,
        help="share by which the delay of batches varies",
    )
    parser.add_argument("--prefetch", type=int, default=2, help="prefetched batches")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--steps-per-epoch", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--filters", type=int, default=FILTERS, help="of the first convolution")
    options = parser.parse_args(words)

    hvd.init()
    # One core for each rank, if there are enough.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.keras.utils.set_random_seed(1)

    fault, rank = options.fault, hvd.rank()
    seconds = (FAULTS[fault] if options.fault_ms is None else options.fault_ms) / 1000
    slow_input = fault == "slow-input-all-ranks" or (fault == "slow-input-one-rank" and rank == 1)
    data = images(seconds if slow_input else 0.0, options.loader_spread, options.prefetch)
    if options.synthetic:
        data = synthetic_like(data)
    slow_compute = fault == "slow-compute-rank" and rank == 1
    model = network(seconds if slow_compute else 0.0, options.filters)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01 * hvd.size()))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        StepLogger(options.log_dir, run_name=options.name, synthetic=options.synthetic),
    ]
    if fault == "busy-rank-0" and rank == 0:
        callbacks.append(Busy(seconds))
    model.fit(
        data,
        steps_per_epoch=options.steps_per_epoch,
        epochs=options.epochs,
        validation_data=data.take(10),
        callbacks=callbacks,
        verbose=0,
    )


if __name__ == "__main__":
    main()
