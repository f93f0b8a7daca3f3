"""Call ``fit`` several times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
from case_runner import raised_by
from keras2.base import (
    BATCH,
    Case,
    Trips,
    adam,
    classifier,
    compiled,
    distributed,
    ranked,
    seen,
    weights_of,
)

from stallscope.keras import StepLogger


@ranked
def second_fit_same_logger(case: Case) -> Any:
    model = classifier()
    logger = case.logger()
    case.fit(model, case.data(), log=logger)
    case.fit(model, case.data().unbatch().batch(BATCH // 2), log=logger)
    return seen(model)


@ranked
def silent_fits(case: Case) -> Any:
    """Fit without the callback, between two fits with it and after them."""
    model = classifier()
    case.fit(model, case.data())
    case.fit(model, case.data(5), callbacks=[])
    case.fit(model, case.data())
    between = weights_of(model)
    case.fit(model, case.data(5), callbacks=[])
    # The other rank may still be closing its log.
    own_logs = len(list(Path(case.logs()).glob(f"rank-{case.rank:05d}.*")))
    return seen(model, own=own_logs, trained=weights_of(model) != between)


@ranked
def compiled_again(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data())
    compiled(model)
    case.fit(model, case.data())
    return seen(model)


def _interrupted(case: Case, model: Any) -> str:
    callbacks = [case.logger(), Trips(batch=4)]
    return raised_by(lambda: case.fit(model, case.data(), callbacks=callbacks))


@ranked
def interrupted(case: Case) -> Any:
    model = classifier()
    raised = _interrupted(case, model)
    checkpoint = case.folder / f"weights-{case.rank}.h5"
    case.fit(
        model,
        case.data(),
        callbacks=[
            case.logger(),
            tf.keras.callbacks.ModelCheckpoint(str(checkpoint), save_weights_only=True),
        ],
    )
    return seen(model, raised=raised)


@ranked
def interrupted_then_silent(case: Case) -> Any:
    model = classifier()
    raised = _interrupted(case, model)
    case.fit(model, case.data(), callbacks=[])
    return seen(model, raised=raised)


@ranked
def interrupted_then_another_model(case: Case) -> Any:
    model, second_model = classifier(), classifier()
    raised = _interrupted(case, model)
    case.fit(second_model, case.data(), log=StepLogger(case.logs("other")))
    return seen(model, raised=raised)


@ranked
def fit_inside_fit(case: Case) -> Any:
    """A callback trains another model with another log, as a search for hyperparameters does."""
    model, inner = classifier(), classifier()

    class Trains(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            case.fit(inner, case.data(4), log=StepLogger(case.logs("inner")))

    case.fit(model, case.data(), epochs=2, callbacks=[case.logger(), Trains()])
    return seen(model)


@ranked
def loaded_on_rank_0(case: Case) -> Any:
    """Rank 0 continues from a checkpoint; the broadcast after batch 1 tells the others."""
    model = classifier()
    if case.rank == 0:
        model.optimizer.iterations.assign(1000)
    case.fit(model, case.data(), epochs=2)
    return seen(model)


class OtherOptimizer(tf.keras.Sequential):
    """A model that trains with another optimizer than the compiled one, which counts no steps."""

    def train_step(self, data: Any) -> Any:
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self(inputs, training=True))
        self.mine.minimize(loss, self.trainable_variables, tape=tape)
        return {"loss": loss}


@ranked
def optimizer_that_counts_nothing(case: Case) -> Any:
    model = classifier(adam(), base=OtherOptimizer)
    model.mine = distributed()
    case.fit(model, case.data())
    case.fit(model, case.data())
    return seen(model)


@ranked
def two_loggers(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data(), callbacks=[case.logger(), StepLogger(case.logs("second"))])
    return seen(model)
