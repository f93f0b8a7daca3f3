"""Small trainings of Keras 2 or 3, recorded and with a bare callback (see turns.py).

KERAS_BACKEND selects the Keras. The bare callback has a hook before each batch and one after it.
StepLogger has none: it surrounds the train function, where only its own count times it.
"""

from pathlib import Path
from time import monotonic_ns
from typing import Any

import keras
import numpy as np
from turns import BATCH, STAGES, WIDTH, Arms, Bare, Ruler, run

from stallscope.keras import StepLogger


class BareCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    # Otherwise Keras 2 converts its logs for the callback.
    _supports_tf_logs = True

    def __init__(self, tool: Bare) -> None:
        super().__init__()
        self.keep = tool.keep

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.keep(monotonic_ns())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.keep(monotonic_ns())


def arms(layers: int, steps: int, ruler: Ruler) -> Arms:
    hidden = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(layers)]
    model = keras.Sequential([keras.Input((WIDTH,)), *hidden, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.001), loss)
    inputs, labels = np.zeros((BATCH * steps, WIDTH), "float32"), np.zeros(BATCH * steps, "int32")

    def train(callback: Any) -> None:
        model.fit(inputs, labels, batch_size=BATCH, verbose=0, callbacks=[callback])

    def recorded(out: Path) -> None:
        train(StepLogger(out, stages=STAGES))

    def bare(tool: Bare) -> None:
        callback = BareCallback(tool)
        ruler.time_methods(callback, "on_train_batch_begin", "on_train_batch_end")
        train(callback)

    return recorded, bare


run(arms)
