"""Train on two ranks with Keras, once per place of hanging.py; rank 1 hangs there in step 30.

horovodrun -np 2 python hang_keras.py OUT
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from hanging import FATAL_STEP, PLACES, Halt

from stallscope.keras import StepLogger


def hang_if(halt: Halt, place: str, step: int) -> None:
    if halt.is_here(place, step):
        os.close(os.open(halt.pipe, os.O_RDONLY))


def batches(halt: Halt) -> Iterator[tuple[Any, Any]]:
    for step in range(2 * FATAL_STEP):
        hang_if(halt, "loader", step)
        yield np.zeros((16, 32), "float32"), np.zeros((16, 8), "float32")


class HangsInBackward(tf.keras.layers.Layer):
    def __init__(self, halt: Halt) -> None:
        super().__init__()
        self.halt = halt
        self.passes = count()

    def call(self, values: Any) -> Any:
        @tf.custom_gradient
        def same(values: Any) -> tuple[Any, Callable[[Any], Any]]:
            return tf.identity(values), lambda gradient: tf.numpy_function(
                self.passed, [gradient], gradient.dtype
            )

        return same(values)

    def passed(self, gradient: Any) -> Any:
        hang_if(self.halt, "backward", next(self.passes))
        return gradient


class HangsBetweenSteps(tf.keras.callbacks.Callback):
    def __init__(self, halt: Halt) -> None:
        super().__init__()
        self.halt = halt

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        hang_if(self.halt, "other", batch)
        if self.halt.is_here("collective", batch):
            hvd.allreduce(tf.zeros(1), name="alone")


def train(halt: Halt) -> None:
    tf.keras.backend.clear_session()
    data = tf.data.Dataset.from_generator(
        lambda: batches(halt), output_signature=(tf.TensorSpec((16, 32)), tf.TensorSpec((16, 8)))
    )
    first = tf.keras.layers.Dense(64, input_shape=(32,))
    model = tf.keras.Sequential([first, HangsInBackward(halt), tf.keras.layers.Dense(8)])
    model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.01)), "mse")
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    callbacks = [broadcast, HangsBetweenSteps(halt), StepLogger(halt.logs)]
    model.fit(data, verbose=0, callbacks=callbacks)


hvd.init()
for place in PLACES:
    train(Halt(hvd.rank(), place, Path(sys.argv[1])))
