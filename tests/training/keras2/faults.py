"""Train while the recorder itself fails."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras2.base import (
    Batches,
    Case,
    Sleeps,
    classifier,
    ours,
    ranked,
    reduction_of,
    seen,
    weights_of,
)
from rows_on_disk import wait_for_step


@ranked
def recorder_breaks(case: Case) -> Any:
    """The recorder raises in the middle of training."""
    from stallscope.collector.recorder.keras_common import finished_calls

    model = classifier()
    original = finished_calls.CallAssembler.graph_rows

    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("broken on purpose")

    class Breaks(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 6:
                wait_for_step(case.logs(), case.rank, 0)
                finished_calls.CallAssembler.graph_rows = broken

    batches, data = Batches(), case.data()
    reduction = reduction_of(model)
    try:
        callbacks = [case.logger(flush_seconds=0.05), Breaks(), batches, Sleeps(0.02)]
        case.fit(model, data, epochs=2, callbacks=callbacks)
    finally:
        finished_calls.CallAssembler.graph_rows = original
    silent = classifier()
    case.fit(silent, data, epochs=2, callbacks=[])
    return seen(
        model,
        batches=batches.count,
        silent=weights_of(silent),
        reduction_is_back=reduction_of(model) is reduction,
    )


@ranked
def recorder_cannot_start(case: Case) -> Any:
    """The recorder raises after it has patched the model: it removes its patches at once."""
    from stallscope.collector.recorder.tf_keras import instrument

    model = classifier()
    original = instrument.Instrumentation.install

    def broken(self: Any, model: Any) -> None:
        original(self, model)
        raise ZeroDivisionError("broken on purpose")

    instrument.Instrumentation.install = broken
    batches, data = Batches(), case.data()
    reduction = reduction_of(model)
    in_training: list[list[str]] = []

    class Looks(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            in_training.append(ours(self.model))

    try:
        case.fit(model, data, callbacks=[case.logger(), batches, Looks()])
    finally:
        instrument.Instrumentation.install = original
    silent = classifier()
    case.fit(silent, data, callbacks=[])
    return seen(
        model,
        batches=batches.count,
        silent=weights_of(silent),
        in_training=in_training[0],
        reduction_is_back=reduction_of(model) is reduction,
    )


@ranked
def stamping_breaks(case: Case) -> Any:
    """The recorder raises while the graph is traced."""
    from stallscope.collector.recorder.tf_keras import instrument

    def broken(data: Any) -> Any:
        raise ZeroDivisionError("broken on purpose")

    original, instrument.sizes_of = instrument.sizes_of, broken
    model = classifier()
    try:
        case.fit(model, case.data())
    finally:
        instrument.sizes_of = original
    return seen(model)
