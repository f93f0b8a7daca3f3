"""Inject faults at places in a Keras training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

#: Called once per step with the current stage.
Here = Callable[[str], None]


def after(here: Here, stage: str, trigger: tf.Tensor, result: tf.Tensor) -> tf.Tensor:
    """Return the result once the trigger is computed and the fault is over."""

    def wait(value: np.ndarray) -> np.ndarray:
        here(stage)
        return value

    with tf.control_dependencies([tf.numpy_function(wait, [trigger], trigger.dtype)]):
        return tf.identity(result)


class Hook(tf.keras.layers.Layer):
    """Pass the input on, delayed by the fault."""

    def __init__(self, here: Here) -> None:
        super().__init__()
        self._here = here

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return after(self._here, "compute", inputs[0, 0], inputs)


class AfterBatch(tf.keras.callbacks.Callback):
    """A callback that takes as long as the fault."""

    _supports_tf_logs = True

    def __init__(self, here: Here) -> None:
        super().__init__()
        self._here = here

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._here("other")
