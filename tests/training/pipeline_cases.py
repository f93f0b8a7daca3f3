"""Train with Keras on tf.data pipelines, each with its own log folder: python pipeline_cases.py OUT

Keras 2 and Keras 3 run the same cases. A case returns the losses with the recorder, and without it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case_runner import Cases, run_cases

from stallscope.keras import StepLogger

CASES = Cases()
BATCH, BATCHES, INPUTS = 8, 120, 4
#: A sample that is slow to read, and a step of a model that is slower than its data.
SLEEP_SECONDS, STEP_SECONDS = 0.003, 0.05
#: Only a training with a recorder takes its time: the other one's losses alone are compared.
_is_timed = [True]


def sleep(seconds: float) -> None:
    if _is_timed[0]:
        time.sleep(seconds)


def slowly(sample: Any) -> Any:
    sleep(SLEEP_SECONDS)
    return sample


def read_slowly(sample: Any) -> Any:
    read = tf.numpy_function(slowly, [sample], tf.float32)
    read.set_shape((INPUTS,))
    return read, 0


def with_label(sample: Any) -> Any:
    return sample, 0


def samples() -> Any:
    random = np.random.default_rng(3)
    return tf.data.Dataset.from_tensor_slices(random.random((BATCHES * BATCH, INPUTS), np.float32))


class Sleeps(keras.layers.Layer):
    """Pass its inputs on after a sleep."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        # Keras 3 would compile the model with XLA, which cannot call Python.
        self.supports_jit = False
        self.seconds = seconds

    def call(self, inputs: Any) -> Any:
        slept = tf.numpy_function(lambda: sleep(self.seconds), [], [])
        with tf.control_dependencies([slept]):
            return tf.identity(inputs)


def trained(folder: Path, data: Any, step_seconds: float = 0.0) -> Any:
    losses = []
    for recorded in (True, False):
        _is_timed[0] = recorded
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.layers.Dense(size) for size in (4, 4, 2)])
        if step_seconds:
            model.add(Sleeps(step_seconds))
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        callbacks = [StepLogger(str(folder / "logs"), machine=False)] if recorded else []
        history = model.fit(data, epochs=2, verbose=0, callbacks=callbacks)
        losses.append(history.history["loss"])
    return {"losses": losses[0], "silent": losses[1]}


@CASES.add
def slow_map(folder: Path) -> Any:
    return trained(folder, samples().map(read_slowly).batch(BATCH).prefetch(2))


@CASES.add
def unknown_length(folder: Path) -> Any:
    data = samples().map(read_slowly).filter(lambda *_: True)
    return trained(folder, data.batch(BATCH).prefetch(2))


@CASES.add
def fast(folder: Path) -> Any:
    """Keep up with a training that takes longer than the data."""
    data = samples().map(with_label).batch(BATCH).prefetch(2)
    return trained(folder, data, step_seconds=STEP_SECONDS)


@CASES.add
def untuned(folder: Path) -> Any:
    """Without tuning, TensorFlow counts nothing."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return trained(folder, samples().map(read_slowly).batch(BATCH).with_options(options))


if __name__ == "__main__":
    run_cases(CASES, Path(sys.argv[1]), sys.argv[2:], 0)
