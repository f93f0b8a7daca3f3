"""Train on two ranks with Keras; rank 1 stops for ever in step 30, in the given place.

horovodrun -np 2 python hang_keras.py loader|backward|other|collective LOG_DIR
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from hanging import FATAL_STEP, stops_here

from stallscope.keras import StepLogger


def hang_if(place: str, step: int) -> None:
    if stops_here(hvd.rank(), place, step):
        threading.Event().wait()


def batches() -> Iterator[tuple[Any, Any]]:
    for step in range(2 * FATAL_STEP):
        hang_if("loader", step)
        yield np.zeros((16, 32), "float32"), np.zeros((16, 8), "float32")


class HangsInBackward(tf.keras.layers.Layer):
    passes = count()

    def call(self, values: Any) -> Any:
        @tf.custom_gradient
        def same(values: Any) -> tuple[Any, Callable[[Any], Any]]:
            return tf.identity(values), lambda gradient: tf.numpy_function(
                self.passed, [gradient], gradient.dtype
            )

        return same(values)

    def passed(self, gradient: Any) -> Any:
        hang_if("backward", next(self.passes))
        return gradient


class HangsBetweenSteps(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        hang_if("other", batch)
        if stops_here(hvd.rank(), "collective", batch):
            hvd.allreduce(tf.zeros(1), name="alone")


hvd.init()
data = tf.data.Dataset.from_generator(
    batches, output_signature=(tf.TensorSpec((16, 32)), tf.TensorSpec((16, 8)))
)
model = tf.keras.Sequential(
    [tf.keras.layers.Dense(64, input_shape=(32,)), HangsInBackward(), tf.keras.layers.Dense(8)]
)
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.01)), "mse")
broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(data, verbose=0, callbacks=[broadcast, HangsBetweenSteps(), StepLogger(sys.argv[2])])
