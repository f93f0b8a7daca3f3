"""What all cases of Keras 2 share: data, models, and what is left in them after training."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from case_runner import Cases, Stopwatch, digest

from stallscope.keras import StepLogger

#: Whether this process is one of several ranks; if not, Horovod is not imported.
RANKED = "HOROVOD_RANK" in os.environ
if RANKED:
    import horovod.tensorflow.keras as hvd

BATCH = 16
STEPS = 12
INPUTS = 8
CLASSES = 4

RANKS, ALONE = Cases(), Cases()
ranked, alone = RANKS.add, ALONE.add


class Case:
    """The folder and the data of a case."""

    def __init__(self, folder: Path) -> None:
        self.rank = hvd.rank() if RANKED else 0
        self.folder = folder
        self.random = np.random.default_rng(7 + self.rank)

    def logs(self, name: str = "logs") -> str:
        return str(self.folder / name)

    def logger(self, **options: Any) -> StepLogger:
        return StepLogger(self.logs(), **options)

    def arrays(self, batches: int = STEPS) -> tuple[Any, Any]:
        """Return inputs and labels for so many whole batches; each rank has its own."""
        inputs = self.random.random((batches * BATCH, INPUTS), np.float32)
        return inputs, self.random.integers(0, CLASSES, batches * BATCH)

    def data(self, batches: int = STEPS) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(self.arrays(batches)).batch(BATCH)

    def stream(self, batches: int) -> tf.data.Dataset:
        """Return a data set with a length that is unknown before its end."""
        inputs, labels = self.arrays(batches)

        def batch_by_batch() -> Any:
            for start in range(0, len(labels), BATCH):
                yield inputs[start : start + BATCH], labels[start : start + BATCH]

        return tf.data.Dataset.from_generator(
            batch_by_batch,
            output_signature=(
                tf.TensorSpec([None, INPUTS], tf.float32),
                tf.TensorSpec([None], tf.int64),
            ),
        )

    def fit(self, model: Any, data: Any, *, log: Any = None, **options: Any) -> Any:
        """Call ``model.fit`` as a user of Horovod does."""
        broadcast = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)] if RANKED else []
        callbacks = [*broadcast, *options.pop("callbacks", [log or self.logger()]), Logs()]
        return model.fit(data, callbacks=callbacks, verbose=0, **options)


class Batches(tf.keras.callbacks.Callback):
    """Count the batches that ``fit`` runs, and read a stopwatch before each."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.stopwatch = Stopwatch()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.stopwatch.read()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.count += 1


class Logs(tf.keras.callbacks.Callback):
    """Collect the recorder's entries in the logs that Keras passes to callbacks."""

    # As tensors: Keras would wait for each of them to convert it to a number.
    _supports_tf_logs = True
    #: The recorder's entries of all trainings.
    ours: ClassVar[list[str]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ours.extend(f"log {name}" for name in logs or () if "stallscope" in str(name))


class Trips(tf.keras.callbacks.Callback):
    """Raise in the middle of training, as a callback with a bug does."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self.batch:
            raise RuntimeError("tripped")


class Sleeps(tf.keras.callbacks.Callback):
    """Sleep before and after each batch, as a slow callback does."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        time.sleep(self.seconds)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(self.seconds)


class Blocks(tf.keras.utils.Sequence):
    def __init__(self, arrays: tuple[Any, Any]) -> None:
        self.inputs, self.labels = arrays

    def __len__(self) -> int:
        return len(self.labels) // BATCH

    def __getitem__(self, index: int) -> Any:
        block = slice(index * BATCH, (index + 1) * BATCH)
        return self.inputs[block], self.labels[block]


class AppliesItself(tf.keras.Sequential):
    """A custom train step that does not reduce its gradients: the recorder reports this mistake."""

    def train_step(self, data: Any) -> Any:
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self(inputs, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def adam(scaled: bool = True) -> Any:
    return tf.keras.optimizers.Adam(0.001 * (hvd.size() if RANKED and scaled else 1))


def distributed(optimizer: Any = None, **options: Any) -> Any:
    return hvd.DistributedOptimizer(optimizer or adam(), **options)


def layers() -> list[Any]:
    return [
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(CLASSES),
    ]


def classifier(optimizer: Any = None, base: Any = tf.keras.Sequential, **options: Any) -> Any:
    tf.keras.utils.set_random_seed(11)
    model = base([tf.keras.Input([INPUTS]), *layers()], name="classifier")
    return compiled(model, optimizer, **options)


def compiled(model: Any, optimizer: Any = None, **options: Any) -> Any:
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or (distributed() if RANKED else adam()), loss, **options)
    return model


def seen(model: Any, **more: Any) -> dict[str, Any]:
    """Return the weights, the number of updates, and what the recorder has left behind."""
    return {
        "weights": weights_of(model),
        "iterations": int(model.optimizer.iterations.numpy()),
        "ours": ours(model),
        **more,
    }


def weights_of(model: Any) -> str:
    return digest(model.get_weights())


def ours(model: Any) -> list[str]:
    """Return the recorder's attributes of the model and its optimizers, and its entries in logs."""
    owners = {"model": model, "optimizer": model.optimizer}
    inner = getattr(model.optimizer, "inner_optimizer", None)
    owners["inner"] = inner
    for name in ("optimizer", "inner"):
        owners[f"{name}.helper"] = getattr(owners[name], "_agg_helper", None)
    return ours_of(owners) + Logs.ours


def ours_of(owners: dict[str, Any]) -> list[str]:
    """Return the recorder's attributes of objects."""
    return [
        f"{owner_name}.{name}"
        for owner_name, owner in owners.items()
        if owner is not None
        for name, value in vars(owner).items()
        if _is_ours(name, value)
    ]


def _is_ours(name: str, value: Any) -> bool:
    code = getattr(value, "__code__", None)
    return (
        "stallscope" in name
        or type(value).__module__.startswith("stallscope")
        or (code is not None and f"{os.sep}recorder{os.sep}" in code.co_filename)
    )


def reduction_of(model: Any) -> Any:
    return model.optimizer._allreduce_grads


def horovod_tensorflow() -> Any:
    import horovod.tensorflow

    return horovod.tensorflow
