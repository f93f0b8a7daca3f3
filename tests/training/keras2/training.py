"""Train in every way that Keras and Horovod offer."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from case_runner import MESSAGES
from keras2.base import (
    BATCH,
    STEPS,
    AppliesItself,
    Case,
    adam,
    classifier,
    compiled,
    distributed,
    layers,
    ranked,
    reduction_of,
    seen,
)


@ranked
def accumulation(case: Case) -> Any:
    model = classifier(distributed(backward_passes_per_step=2))
    case.fit(model, case.data())
    return seen(model)


@ranked
def accumulation_left_over(case: Case) -> Any:
    """Horovod keeps the last pass of a fit of 7, and reduces after the first one of the next fit."""
    model = classifier(distributed(backward_passes_per_step=2))
    for _ in range(2):
        case.fit(model, case.data(7))
    return seen(model)


@ranked
def not_reduced(case: Case) -> Any:
    errors_after_step: list[int] = []

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            errors_after_step.append(sum(1 for level, _ in MESSAGES.records if level == "ERROR"))

    model = classifier(base=AppliesItself)
    case.fit(model, case.data(), callbacks=[case.logger(), Watch()])
    return seen(model, errors_after_step=errors_after_step)


class WithUnused(tf.keras.Model):
    """A model with a trainable variable that the loss does not use: its gradient is None."""

    def __init__(self) -> None:
        super().__init__()
        self.used = tf.keras.Sequential(layers())
        self.unused = tf.Variable(tf.ones([3]), trainable=True, name="unused")

    def call(self, inputs: Any) -> Any:
        return self.used(inputs)


@ranked
def none_gradient(case: Case) -> Any:
    """Its learning rate is a schedule."""
    tf.keras.utils.set_random_seed(11)
    rate = tf.keras.optimizers.schedules.ExponentialDecay(0.002, 10, 0.5)
    model = compiled(WithUnused(), distributed(tf.keras.optimizers.Adam(rate)))
    case.fit(model, case.data())
    return seen(model)


@ranked
def eager(case: Case) -> Any:
    """Its learning rate does not grow with the ranks."""
    model = classifier(distributed(adam(scaled=False)), run_eagerly=True)
    case.fit(model, case.data(4))
    return seen(model)


@ranked
def eager_accumulation(case: Case) -> Any:
    model = classifier(distributed(backward_passes_per_step=2), run_eagerly=True)
    case.fit(model, case.data(4))
    return seen(model)


@ranked
def many_per_call(case: Case) -> Any:
    model = classifier(steps_per_execution=10)
    case.fit(model, case.data(25), epochs=2)
    return seen(model)


@ranked
def more_per_call_than_steps(case: Case) -> Any:
    model = classifier(steps_per_execution=10)
    case.fit(model, case.data(4), epochs=2)
    return seen(model, steps_per_execution=int(model._steps_per_execution.numpy()))


@ranked
def tuned_per_call(case: Case) -> Any:
    """Change how many steps a call runs, as Keras' tuner does with "auto"."""

    class Tunes(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model._steps_per_execution.assign(3)

    model = classifier(steps_per_execution="auto")
    # The real tuner first measures for a minute.
    model._steps_per_execution_tuner.start = model._steps_per_execution_tuner.stop = lambda: None
    case.fit(model, case.data(13), callbacks=[case.logger(), Tunes()])
    return seen(model)


@ranked
def mixed_precision(case: Case) -> Any:
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = classifier(jit_compile=False)
    case.fit(model, case.data())
    case.fit(model, case.data())
    return seen(model, optimizer=type(model.optimizer).__name__)


@ranked
def mixed_precision_accumulation_many_per_call(case: Case) -> Any:
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    optimizer = distributed(backward_passes_per_step=2)
    model = classifier(optimizer, steps_per_execution=4, jit_compile=False)
    case.fit(model, case.data())
    return seen(model)


@ranked
def legacy_optimizer(case: Case) -> Any:
    model = classifier(distributed(tf.keras.optimizers.legacy.SGD(0.037)))
    reduction = reduction_of(model)
    case.fit(model, case.data())
    return seen(model, reduction_is_back=reduction_of(model) is reduction)


def _embeddings(case: Case, sparse_as_dense: bool) -> Any:
    words = case.random.integers(0, 200, (STEPS * BATCH, 5))
    data = tf.data.Dataset.from_tensor_slices((words, case.arrays()[1])).batch(BATCH)
    tf.keras.utils.set_random_seed(11)
    model = tf.keras.Sequential(
        [
            tf.keras.Input([5], dtype=tf.int64),
            tf.keras.layers.Embedding(200, 16),
            tf.keras.layers.Flatten(),
            *layers(),
        ]
    )
    compiled(model, distributed(sparse_as_dense=sparse_as_dense))
    case.fit(model, data)
    return seen(model)


@ranked
def embeddings(case: Case) -> Any:
    return _embeddings(case, sparse_as_dense=False)


@ranked
def embeddings_as_dense(case: Case) -> Any:
    return _embeddings(case, sparse_as_dense=True)


@ranked
def no_stages(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data(), log=case.logger(stages=False, batch_size=BATCH))
    return seen(model)


@ranked
def initial_epoch(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data(), initial_epoch=3, epochs=5)
    return seen(model)
