"""Train with other callbacks next to the recorder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
from keras2.base import (
    STEPS,
    Case,
    Sleeps,
    classifier,
    ranked,
    seen,
    weights_of,
)


@ranked
def sleepers(case: Case) -> Any:
    """Other callbacks take time, before the recorder's and after it."""
    model = classifier()
    case.fit(model, case.data(), callbacks=[Sleeps(0.05), case.logger(), Sleeps(0.05)])
    return seen(model)


@ranked
def validation(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data(), epochs=3, validation_data=case.data(4), validation_freq=[1, 3])
    return seen(model)


class SavesBySelf(tf.keras.callbacks.Callback):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 5:
            self.model.save(str(self.path))


@ranked
def checkpoints(case: Case) -> Any:
    """Rank 0 saves in every format, as in Horovod's guides, and loads all files."""
    import horovod.tensorflow.keras as hvd

    model = classifier()
    paths = {name: case.folder / name for name in ("model.h5", "model.keras", "saved_model")}
    by_self = case.folder / "by-self.keras"
    savers = [tf.keras.callbacks.ModelCheckpoint(str(path)) for path in paths.values()]
    callbacks = [case.logger(), *([*savers, SavesBySelf(by_self)] if case.rank == 0 else [])]
    case.fit(model, case.data(), epochs=2, callbacks=callbacks)
    same = {}
    if case.rank == 0:
        for name, path in paths.items():
            loaded = tf.keras.models.load_model(str(path), compile=False)
            same[name] = weights_of(loaded) == weights_of(model)
        loaded = tf.keras.models.load_model(str(by_self), compile=False)
        same["by-self"] = len(loaded.get_weights()) == len(model.get_weights())
        # With the optimizer, as for training that continues from a checkpoint.
        resumed = hvd.load_model(str(paths["model.h5"]))
        same["resumed"] = int(resumed.optimizer.iterations.numpy()) == 2 * STEPS
    return seen(model, same=same)
