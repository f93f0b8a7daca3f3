"""Train models with train steps and train functions of the user."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras2.base import (
    Case,
    adam,
    classifier,
    horovod_tensorflow,
    ranked,
    seen,
)


class ReducesItself(tf.keras.Sequential):
    """A model with a train step that reduces with Horovod's tape."""

    def train_step(self, data: Any) -> Any:
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self(inputs, training=True))
        tape = horovod_tensorflow().DistributedGradientTape(tape)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


@ranked
def tape(case: Case) -> Any:
    model = classifier(adam(), base=ReducesItself)
    case.fit(model, case.data())
    return seen(model, later_tape_is_plain=plain_tape_reduces())


def plain_tape_reduces() -> bool:
    """Return whether a tape that is made after the training reduces with Horovod's own function."""
    with tf.GradientTape() as tape:
        pass
    reduces = horovod_tensorflow().DistributedGradientTape(tape)._allreduce_grads
    return "stallscope" not in reduces.__module__


class ReducesTwice(tf.keras.Sequential):
    """A model with two tapes and two optimizers, each for some of the weights."""

    #: Set before training.
    other_optimizer: Any = None

    def train_step(self, data: Any) -> Any:
        inputs, labels = data
        weights = self.trainable_variables
        for optimizer, some in (
            (self.optimizer, weights[:2]),
            (self.other_optimizer, weights[2:]),
        ):
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=labels, y_pred=self(inputs, training=True))
            tape = horovod_tensorflow().DistributedGradientTape(tape)
            optimizer.apply_gradients(zip(tape.gradient(loss, some), some))
        return {"loss": loss}


@ranked
def two_tapes(case: Case) -> Any:
    model = classifier(adam(), base=ReducesTwice)
    model.other_optimizer = adam()
    case.fit(model, case.data())
    return seen(model)


class LogsByNumber(tf.keras.Sequential):
    """A model with numbers as the keys of its logs, which cannot be sorted with names."""

    def train_step(self, data: Any) -> Any:
        return dict(enumerate(super().train_step(data).values()))


@ranked
def own_train_step_on_instance(case: Case) -> Any:
    model = classifier(base=LogsByNumber)
    original = model.train_step

    def train_step(data: Any) -> Any:
        return original(data)

    model.train_step = train_step
    case.fit(model, case.data())
    return seen(model, own_is_back=model.train_step is train_step)


class OwnTrainFunction(tf.keras.Sequential):
    """A model with a train function that does not call ``train_step``."""

    def make_train_function(self, force: bool = False) -> Any:
        def train_function(iterator: Any) -> Any:
            inputs, labels = next(iterator)
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=labels, y_pred=self(inputs, training=True))
            self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
            return {"loss": loss}

        self.train_function = tf.function(train_function)
        return self.train_function


@ranked
def own_train_function(case: Case) -> Any:
    model = classifier(base=OwnTrainFunction)
    case.fit(model, case.data())
    return seen(model)


@ranked
def assigned_train_function(case: Case) -> Any:
    """Assign a train function to the model instead of overriding a method."""
    model = classifier()

    @tf.function
    def train_function(iterator: Any) -> Any:
        return model.train_step(next(iterator))

    model.train_function = train_function
    case.fit(model, case.data())
    return seen(model, own_is_back=model.train_function is train_function)


class Wraps(tf.keras.callbacks.Callback):
    """A callback that wraps the train function, and leaves the wrapper there."""

    def on_train_begin(self, logs: Any = None) -> None:
        train_function = self.model.train_function
        self.model.train_function = lambda iterator: train_function(iterator)


@ranked
def wrapped_train_function(case: Case) -> Any:
    """The wrapper still calls the recorder's timer after the recording."""
    model = classifier()
    case.fit(model, case.data(), callbacks=[case.logger(), Wraps()])
    model.fit(case.data(), verbose=0)
    return seen(model)


@ranked
def train_function_made_again(case: Case) -> Any:
    """A callback freezes a layer, which needs a new train function."""

    class Freezes(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 0:
                self.model.layers[0].trainable = False
                self.model.make_train_function(force=True)

    model = classifier()
    case.fit(model, case.data(), callbacks=[case.logger(), Freezes()], epochs=3)
    return seen(model)


class TwoStepsPerCall(tf.keras.Sequential):
    """A model with a train function that runs two train steps per batch that ``fit`` counts."""

    def make_train_function(self, force: bool = False) -> Any:
        def train_function(iterator: Any) -> Any:
            self.train_step(next(iterator))
            return self.train_step(next(iterator))

        self.train_function = tf.function(train_function)
        return self.train_function


@ranked
def two_steps_per_call(case: Case) -> Any:
    model = classifier(base=TwoStepsPerCall)
    case.fit(model, case.data(10), steps_per_epoch=5)
    return seen(model)


class ReducesLoss(tf.keras.Sequential):
    """A model that reduces a tensor without a name: Horovod names it after the op in the graph."""

    def train_step(self, data: Any) -> Any:
        inputs, labels = data
        noisy = tf.identity(inputs + 0.0)
        logs = super().train_step((noisy, labels))
        return {"loss": horovod_tensorflow().allreduce(tf.identity(logs["loss"]) * 1.0)}


@ranked
def rank_0_only(case: Case) -> Any:
    model = classifier(base=ReducesLoss)
    case.fit(model, case.data(), callbacks=[case.logger()] if case.rank == 0 else [])
    return seen(model)
