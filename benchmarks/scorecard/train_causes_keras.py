"""Train the causes chapter with TF-Keras and Horovod; causes.py starts it.

horovodrun -np 2 python benchmarks/scorecard/train_causes_keras.py PLAN OUT
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from causes_launch import LAYERS, Causes, Compile, Rank
from causes_plan import BATCH
from horovod.tensorflow import broadcast_object
from pairs_launch import CLASSES, WIDTH, Pause
from train_pairs_keras import one_core_per_rank

from stallscope.keras import StepLogger


class Device(tf.keras.layers.Layer):
    """Takes as long as the causes say for its inputs, and returns their means."""

    def __init__(self, causes: Causes) -> None:
        super().__init__()
        self._causes = causes

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        def wait(elements: np.int32) -> np.int32:
            self._causes.compute(int(elements))
            return elements

        with tf.control_dependencies([tf.numpy_function(wait, [tf.size(inputs)], tf.int32)]):
            means = tf.reduce_mean(inputs, axis=1, keepdims=True)
        return tf.repeat(means, WIDTH, axis=1)


class AfterSteps(tf.keras.callbacks.Callback):
    """Ends the steps of the causes, and pauses the training after every epoch."""

    _supports_tf_logs = True

    def __init__(self, causes: Causes, pause: Pause) -> None:
        super().__init__()
        self._causes = causes
        self._pause = pause

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._causes.end_of_step()
        self._causes.compiled()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self._pause()


def data(causes: Causes, steps: int) -> tf.data.Dataset:
    """Make so many batches, whose sizes the causes tell."""

    def load(_: np.int64) -> tuple[np.ndarray, np.ndarray]:
        length = causes.next_batch().length
        return np.zeros((BATCH, length), np.float32), np.zeros(BATCH, np.int64)

    def loaded(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x, y = tf.numpy_function(load, [number], (tf.float32, tf.int64))
        return tf.ensure_shape(x, (BATCH, None)), tf.ensure_shape(y, (BATCH,))

    options = tf.data.Options()
    # Otherwise TensorFlow adds prefetching where there is none.
    options.autotune.enabled = False
    return tf.data.Dataset.range(steps).map(loaded).with_options(options)


def network(causes: Causes) -> tf.keras.Model:
    """Make the compiled model."""
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = tf.keras.Sequential(
        [tf.keras.Input((None,)), Device(causes), *layers, tf.keras.layers.Dense(CLASSES)]
    )
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.001))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def compiler(for_all_shapes: bool) -> Compile:
    """Return a function that traces another one for each new length, or once for all of them."""
    seconds = 0.0

    @tf.function(reduce_retracing=for_all_shapes)
    def doubled(values: tf.Tensor) -> tf.Tensor:
        # Runs while TensorFlow traces.
        time.sleep(seconds)
        return values * 2

    def run(length: int, more: float) -> tf.Tensor:
        nonlocal seconds
        seconds = more
        return doubled(tf.zeros(length))

    return run


def train(causes: Causes, log_dir: Path, turns: int, steps: int, pause: Pause) -> None:
    """Train one run from the start, and pause after every turn, which is an epoch."""
    tf.keras.utils.set_random_seed(1)
    for fault in causes.run.faults:
        if fault.cause == "compilation":
            causes.compile = compiler(fault.repaired)
    begin_together = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    log = StepLogger(log_dir, run_name=causes.run.name)
    network(causes).fit(
        data(causes, steps),
        epochs=turns,
        callbacks=[begin_together, log, AfterSteps(causes, pause)],
        verbose=0,
    )


def main() -> None:
    plan, out = Path(sys.argv[1]), Path(sys.argv[2])
    hvd.init()
    one_core_per_rank()
    Rank(out, hvd.rank(), train, partial(broadcast_object, root_rank=0)).run(plan)


if __name__ == "__main__":
    main()
