"""Small trainings of Keras 2 without ``fit``, recorded and with a bare tool (see turns.py)."""

from pathlib import Path
from time import monotonic_ns
from typing import Any, Callable

import tensorflow as tf
from turns import BATCH, WIDTH, Arms, Bare, Ruler, run

from stallscope.keras import StepLogger


class Calls:
    """A tool that is called as StepLogger is, and keeps the readings of the clock."""

    def __init__(self, tool: Bare) -> None:
        self._keep: Callable[[Any], None] = tool.keep

    def step(self) -> "Calls":
        return self

    def __enter__(self) -> None:
        self._keep(monotonic_ns())

    def __exit__(self, *_: Any) -> None:
        self._keep(monotonic_ns())

    def mark(self, name: str, batch: Any) -> None:
        self._keep(monotonic_ns())


class SameCalls(Calls):
    """Keeps the batch's shape, too."""

    def mark(self, name: str, batch: Any) -> None:
        self._keep((monotonic_ns(), batch._shape_tuple()))


def arms(layers: int, steps: int, ruler: Ruler) -> Arms:
    hidden = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(layers)]
    model = tf.keras.Sequential([tf.keras.Input((WIDTH,)), *hidden, tf.keras.layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.SGD(0.001)
    optimizer.build(model.trainable_variables)
    batch = tf.zeros((BATCH, WIDTH)), tf.zeros(BATCH, tf.int32)
    batches = iter(tf.data.Dataset.from_tensors(batch).repeat())

    def graph(watched: Callable[[Any], Any]) -> Any:
        @tf.function
        def train(inputs: tf.Tensor, labels: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                value = loss(labels, model(inputs, training=True))
            gradients = watched(tape).gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        return train

    def loop(log: Any, train: Any) -> None:
        mark = ruler.around(log.mark)
        begin = ruler.around(lambda: log.step().__enter__())
        end = ruler.around(log.step().__exit__)
        for _ in range(steps):
            begin()
            inputs, labels = next(batches)
            mark("data", inputs)
            train(inputs, labels)
            # As a with statement ends.
            end(None, None, None)

    def recorded(out: Path) -> None:
        with StepLogger(out, model=model, optimizer=optimizer) as log:
            train = graph(log.watch)
            with log.epoch():
                loop(log, train)

    def bare(tool: Bare) -> None:
        train, call = graph(lambda tape: tape), ruler.around(lambda: tool.keep(monotonic_ns()))
        for _ in range(steps):
            call()
            inputs, labels = next(batches)
            call()
            train(inputs, labels)
            call()

    def with_calls(kind: Callable[[Bare], Any]) -> Callable[[Bare], None]:
        return lambda tool: loop(kind(tool), graph(lambda tape: tape))

    return recorded, bare, with_calls(Calls), with_calls(SameCalls)


run(arms)
