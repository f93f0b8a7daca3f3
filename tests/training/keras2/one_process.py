"""Train in one process, without Horovod and with it."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import tensorflow as tf
from keras2.base import (
    AppliesItself,
    Case,
    adam,
    alone,
    classifier,
    seen,
    weights_of,
)


@alone
def callback_called_by_hand(case: Case) -> Any:
    """A custom loop calls the callback as ``fit`` does, without parameters of a fit."""
    model, logger = classifier(), case.logger()
    logger.set_model(model)
    logger.on_train_begin()
    logger.on_epoch_begin(0)
    batches = iter(case.data())
    for _ in range(12):
        model.make_train_function()(batches)
    logger.on_epoch_end(0)
    logger.on_train_end()
    return seen(model)


@alone
def xla_alone(case: Case) -> Any:
    model = classifier(jit_compile=True)
    case.fit(model, case.data())
    return seen(model)


class CompiledInside(tf.keras.Sequential):
    """A model with a train step that XLA compiles without Keras' knowledge."""

    @tf.function(jit_compile=True)
    def _inner(self, inputs: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self(inputs, training=True))
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return loss

    def train_step(self, data: Any) -> Any:
        return {"loss": self._inner(*data)}


@alone
def xla_inside(case: Case) -> Any:
    model = classifier(base=CompiledInside)
    model.optimizer.build(model.trainable_variables)
    case.fit(model, case.data())
    return seen(model)


@alone
def one_process(case: Case) -> Any:
    model = classifier()
    logger, data = pickle.loads(pickle.dumps(case.logger())), case.data()
    case.fit(model, data, epochs=2, log=logger)
    silent = classifier()
    case.fit(silent, data, epochs=2, callbacks=[])
    horovod = any(name.startswith("horovod") for name in sys.modules)
    return seen(model, horovod_imported=horovod, silent=weights_of(silent))


@alone
def one_process_legacy(case: Case) -> Any:
    model = classifier(tf.keras.optimizers.legacy.Adam())
    case.fit(model, case.data())
    return seen(model)


@alone
def one_process_mixed_precision(case: Case) -> Any:
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = classifier(jit_compile=False)
    case.fit(model, case.data())
    return seen(model)


@alone
def one_process_own_loop(case: Case) -> Any:
    model = classifier(base=AppliesItself)
    case.fit(model, case.data())
    return seen(model)


@alone
def one_process_with_horovod(case: Case) -> Any:
    """Train one rank without a launcher. This is the last case: Horovod stays initialised."""
    import horovod.tensorflow.keras as hvd

    hvd.init()
    model = classifier(hvd.DistributedOptimizer(adam()))
    case.fit(model, case.data())
    return seen(model)
