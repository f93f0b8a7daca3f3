"""Train a case of the hangs chapter with TF-Keras and Horovod; hangs.py starts it.

horovodrun -np 2 python benchmarks/scorecard/train_hangs_keras.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from hangs_plan import Place

from stallscope.keras import StepLogger

BATCH = np.zeros((16, 32), "float32"), np.zeros((16, 8), "float32")
SIGNATURE = (tf.TensorSpec((16, 32)), tf.TensorSpec((16, 8)))


def batches(place: Place) -> Iterator[tuple[Any, Any]]:
    while True:
        place.here("loader")
        yield BATCH


def slow_batch(place: Place) -> Iterator[tuple[Any, Any]]:
    place.pause()
    yield BATCH


def dataset(generator: Callable[[Place], Any], place: Place) -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(lambda: generator(place), output_signature=SIGNATURE)


class Hook(tf.keras.layers.Layer):
    """Take as long as a step's compute; backward may hang when half of the gradients are ready."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def call(self, values: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        place = self._place
        if training and place.pauses("first step"):
            # Python code of a layer runs while the step is traced.
            place.pause()

        def compute(value: np.ndarray) -> np.ndarray:
            place.compute()
            return value

        def backward(value: np.ndarray) -> np.ndarray:
            place.here("backward")
            return value

        @tf.custom_gradient
        def same(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            computed = tf.numpy_function(compute, [values], values.dtype)
            computed.set_shape(values.shape)
            return computed, lambda gradient: tf.numpy_function(
                backward, [gradient], gradient.dtype
            )

        return same(values)


class Network(tf.keras.Sequential):
    """A model whose checkpoint takes long."""

    place: Place

    def save_weights(self, *arguments: Any, **options: Any) -> Any:
        self.place.pause()


class BetweenSteps(tf.keras.callbacks.Callback):
    _supports_tf_logs = True

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._place.here("between")
        self._place.here("collective")
        if self._place.pauses("evaluation", batch):
            self._place.evaluate()


def main() -> None:
    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    # The loader's thread and the training's: either may hang.
    tf.config.threading.set_inter_op_parallelism_threads(2)
    place = Place(Path(sys.argv[1]), hvd.rank())
    place.collective = lambda: hvd.allreduce(tf.zeros(1), name="alone")
    layers = [tf.keras.layers.Dense(64, input_shape=(32,)), Hook(place), tf.keras.layers.Dense(8)]
    model = Network(layers)
    model.place = place
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.legacy.SGD(0.001))
    model.compile(optimizer, "mse")
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        BetweenSteps(place),
        StepLogger(place.log_dir, run_name=place.case.name),
    ]
    if place.pauses("checkpoint") and hvd.rank() == 0:
        weights = str(place.log_dir.parent / "weights")
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(weights, save_weights_only=True))
    long = place.pauses("validation") or place.pauses("checkpoint")
    validation = dataset(slow_batch, place) if place.pauses("validation") else None
    model.fit(
        dataset(batches, place),
        # A validation or a checkpoint is at the end of the epoch; the second epoch follows it.
        epochs=2 if long else 1,
        steps_per_epoch=place.case.step if long else place.steps,
        validation_data=validation,
        verbose=0,
        callbacks=callbacks,
    )


if __name__ == "__main__":
    main()
