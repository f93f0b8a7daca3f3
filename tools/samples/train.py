"""Trains a small convolutional network with Horovod and the callback, with or without a fault.

    horovodrun -np 2 python tools/samples/train.py LOG_DIR [--name NAME] [--fault FAULT] [--synthetic]

It records the sample runs in sample_logs/. Every fault is a sleep, so that its size is known.
"""

from __future__ import annotations

import argparse
import time

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from stallscope.keras import StepLogger, synthetic_like

BATCH = 32

SLOW_INPUT_SECONDS = 0.090
SLOW_COMPUTE_SECONDS = 0.015
BUSY_CALLBACK_SECONDS = 0.015

FAULTS = ("none", "slow-input-one-rank", "slow-input-all-ranks", "slow-compute-rank", "busy-rank-0")


def images(slow: bool) -> tf.data.Dataset:
    """Random images with light augmentation behind a prefetch, as many users have it."""
    generator = np.random.default_rng(hvd.rank())
    pixels = generator.random((1024, 32, 32, 3), dtype=np.float32)
    labels = generator.integers(0, 10, 1024)
    data = tf.data.Dataset.from_tensor_slices((pixels, labels)).shuffle(256, seed=1).repeat()
    data = data.batch(BATCH, drop_remainder=True)
    data = data.map(lambda x, y: (tf.image.random_flip_left_right(x), y))
    if slow:
        data = data.map(lambda x, y: (slept(x, SLOW_INPUT_SECONDS), y))
    return data.prefetch(2)


def slept(tensor: tf.Tensor, seconds: float) -> tf.Tensor:
    """The tensor, so many seconds later."""

    def sleep(value: np.ndarray) -> np.ndarray:
        time.sleep(seconds)
        return value

    result = tf.numpy_function(sleep, [tensor], tensor.dtype)
    result.set_shape(tensor.shape)
    return result


class Slow(tf.keras.layers.Layer):
    """Passes its input on, and takes its time."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        # Behind a stopped gradient: the backward pass needs no derivative of sleeping.
        late = slept(tf.reduce_sum(inputs), SLOW_COMPUTE_SECONDS)
        return inputs + 0.0 * tf.stop_gradient(late)


class Busy(tf.keras.callbacks.Callback):
    """A callback with work of its own after every batch."""

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        time.sleep(BUSY_CALLBACK_SECONDS)


def network(slow: bool) -> tf.keras.Model:
    layers = [
        tf.keras.layers.Conv2D(48, 3, activation="relu", padding="same"),
        tf.keras.layers.Conv2D(64, 3, strides=2, activation="relu", padding="same"),
        tf.keras.layers.Conv2D(96, 3, strides=2, activation="relu", padding="same"),
        tf.keras.layers.GlobalAveragePooling2D(),
        tf.keras.layers.Dense(10),
    ]
    return tf.keras.Sequential(([Slow()] if slow else []) + layers, name="small_convnet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log_dir")
    parser.add_argument("--name", help="the run's name")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--steps-per-epoch", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()

    hvd.init()
    # One core for each rank, as far as there are any.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.keras.utils.set_random_seed(1)

    fault, rank = options.fault, hvd.rank()
    slow_input = fault == "slow-input-all-ranks" or (fault == "slow-input-one-rank" and rank == 1)
    data = images(slow_input)
    if options.synthetic:
        data = synthetic_like(data)
    model = network(slow=fault == "slow-compute-rank" and rank == 1)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01 * hvd.size()))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        StepLogger(options.log_dir, run_name=options.name, synthetic=options.synthetic),
    ]
    if fault == "busy-rank-0" and rank == 0:
        callbacks.append(Busy())
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
