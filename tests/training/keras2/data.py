"""Train on every kind of data, and with slow data."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf
from case_runner import REPEATED, raised_by, waiting_seconds
from keras2.base import (
    BATCH,
    CLASSES,
    INPUTS,
    STEPS,
    Batches,
    Blocks,
    Case,
    alone,
    classifier,
    compiled,
    horovod_tensorflow,
    layers,
    ranked,
    reduction_of,
    seen,
    weights_of,
)

from stallscope.keras import StepLogger, gather_logs, probe_input


@ranked
def file_and_records(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data(), log=case.logger(sink="both"))
    return seen(model)


@ranked
def only_records(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data(), log=StepLogger(None, sink="logging", run_name="no folder"))
    return seen(model)


@ranked
def plain(case: Case) -> Any:
    data = case.data()
    model = classifier()
    reduction = reduction_of(model)
    batches = Batches()
    saving = tf.keras.callbacks.ModelCheckpoint(
        str(case.folder / f"{case.rank}.weights.h5"), save_weights_only=True
    )
    callbacks = [case.logger(run_name="plain run"), batches, saving]
    case.fit(model, data, epochs=2, callbacks=callbacks, validation_data=case.data(3))
    silent = classifier()
    case.fit(silent, data, epochs=2, callbacks=[])
    return seen(
        model,
        batches=batches.count,
        stopwatch=batches.stopwatch.times,
        silent=weights_of(silent),
        reduction_is_back=reduction_of(model) is reduction,
    )


class Traced(tf.keras.layers.Dropout):
    """Drop some inputs, and count the traces of the model."""

    traces = 0

    def call(self, inputs: Any, training: Any = None) -> Any:
        Traced.traces += 1
        return super().call(inputs, training=training)


def _trained(case: Case, data: Any, log: Any = None, **options: Any) -> tuple[Any, int]:
    """Train with dropout; return the model, and how often it was traced."""
    tf.keras.utils.set_random_seed(11)
    Traced.traces = 0
    model = compiled(tf.keras.Sequential([tf.keras.Input([INPUTS]), Traced(0.1), *layers()]))
    case.fit(model, data, epochs=2, callbacks=[] if log is None else [log], **options)
    return model, Traced.traces


def _probed(case: Case, data: Any, batches: int | None = 6, **options: Any) -> Any:
    """Train on data without and with an input probe of so many batches; None leaves that to the data."""
    silent, traces = _trained(case, data, **options)
    log = case.logger(probe_input=batches, probe_every=12)
    model, traces_with_probe = _trained(case, data, log, **options)
    return seen(model, silent=weights_of(silent), traces=[traces, traces_with_probe])


@ranked
def probed(case: Case) -> Any:
    """Fetch batches of a shuffled data set ahead."""
    data = case.data().shuffle(4, seed=3, reshuffle_each_iteration=False).prefetch(2)
    return _probed(case, data)


@alone
def probed_stream(case: Case) -> Any:
    """Fetch batches ahead of a data set with an unknown length and unknown shapes."""
    return _probed(case, case.stream(12))


@alone
def probed_over_epochs(case: Case) -> Any:
    """Fetch batches ahead where one iterator serves all epochs."""
    data = case.data(30).map(lambda inputs, labels: (inputs + tf.random.uniform([]), labels))
    tf.random.set_seed(5)
    return _probed(case, data.repeat(), steps_per_epoch=STEPS)


@alone
def probed_sequence(case: Case) -> Any:
    blocks = probe_input(Blocks(case.arrays()), 6)
    # With shuffling Keras itself draws in a thread, in any order.
    return _probed(case, blocks, None, workers=2, shuffle=False)


class Ragged(tf.keras.Sequential):
    """Sum each row of a batch before it computes."""

    def train_step(self, data: Any) -> Any:
        rows, labels = data
        return super().train_step((tf.reduce_sum(rows, 1), labels))


@alone
def probed_rows(case: Case) -> Any:
    """Fetch ragged batches ahead, eagerly, and until an error of the pipeline."""
    rows = tf.RaggedTensor.from_row_lengths(np.ones((48 * BATCH, INPUTS), np.float32), [1, 3] * 192)
    labels = np.arange(384) % CLASSES
    data = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(BATCH)
    broken = data.enumerate().map(
        lambda number, batch: (
            batch[0],
            tf.debugging.check_numerics(1.0 / tf.cast(21 - number, tf.float32), "broken data")
            * tf.cast(batch[1], tf.float32),
        )
    )

    def end_of(run_eagerly: bool, *log: Any) -> Any:
        model = classifier(base=Ragged, run_eagerly=run_eagerly)
        raised = raised_by(lambda: case.fit(model, broken, callbacks=list(log)))
        return [raised, weights_of(model)]

    def probed_end_of(run_eagerly: bool, name: str) -> Any:
        return end_of(run_eagerly, StepLogger(case.logs(name), probe_input=8, probe_every=16))

    return {
        "graph": [end_of(False), probed_end_of(False, "graph")],
        "eager": [end_of(True), probed_end_of(True, "eager")],
    }


@alone
def probe_refused(case: Case) -> Any:
    """Ask for a probe of data that cannot have one."""

    def log(name: str, **options: Any) -> Any:
        return StepLogger(case.logs(name), probe_input=4, probe_every=10, **options)

    data = case.data()
    endless = (batch for batch in iter(data.repeat()))
    case.fit(classifier(), endless, steps_per_epoch=STEPS, callbacks=[log("generator")])
    case.fit(classifier(), data, callbacks=[log("synthetic", synthetic=True)])
    several = classifier(steps_per_execution=4)
    case.fit(several, data, callbacks=[log("several")])
    case.fit(classifier(), case.data(6), callbacks=[log("short")])
    case.fit(classifier(), probe_input(data, 0), callbacks=[log("none")])
    with log("loop") as loop:
        for _ in range(3):
            with loop.step():
                pass
    return {}


def _texts(batches: int) -> Any:
    """Return random numbers for texts, and the length of each: so many batches."""
    random = np.random.default_rng(3)
    numbers = random.integers(1, 100, (batches * BATCH, INPUTS))
    return numbers, random.integers(1, INPUTS + 1, batches * BATCH)


def _reads(name: str, told: Any, count: Any) -> tf.keras.Model:
    """Return a compiled model of texts, and of what tells their lengths."""
    ids = tf.keras.Input([INPUTS], dtype=tf.int64, name="input_ids")
    told = tf.keras.Input(told, dtype=tf.int64, name=name)
    embedded = tf.reduce_mean(tf.keras.layers.Embedding(100, 8)(ids), axis=1)
    features = tf.concat([embedded, tf.cast(count(told), tf.float32)], axis=1)
    return compiled(tf.keras.Model([ids, told], tf.keras.layers.Dense(CLASSES)(features)))


def _padded(case: Case, name: str, told: Any, model: tf.keras.Model, lengths: Any) -> Any:
    numbers, _ = _texts(STEPS)
    inputs = {"input_ids": numbers, name: told}
    data = tf.data.Dataset.from_tensor_slices((inputs, numbers[:, 0] % CLASSES))
    case.fit(model, data.batch(BATCH), epochs=2)
    tokens = lengths.reshape(STEPS, BATCH).sum(1).tolist() * 2
    return seen(model, counted=[[count, BATCH * INPUTS - count] for count in tokens])


@ranked
def padded(case: Case) -> Any:
    """Train on texts with a mask."""
    _, lengths = _texts(STEPS)
    mask = (np.arange(INPUTS) < lengths[:, None]).astype(np.int64)
    return _padded(
        case, "attention_mask", mask, _reads("attention_mask", [INPUTS], _of_mask), lengths
    )


def _of_mask(mask: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(mask, axis=1, keepdims=True)


@alone
def padded_with_lengths(case: Case) -> Any:
    """Train on texts with their lengths, in batches of unknown size."""
    _, lengths = _texts(STEPS)
    model = _reads("lengths", [], lambda told: told[:, None])
    return _padded(case, "lengths", lengths, model, lengths)


@ranked
def gathered(case: Case) -> Any:
    """Gather the logs of ranks without a shared folder into rank 0's, twice."""
    folder = case.logs(f"logs-{case.rank}")
    model = classifier()
    case.fit(model, case.data(), log=StepLogger(folder))
    return seen(model, files=[len(gather_logs(folder)) for _ in range(2)])


@ranked
def sampled(case: Case) -> Any:
    """Record few steps in full, into small files."""
    model = classifier()
    log = case.logger(sample_after=64, sample_one_in=4, max_file_mb=0.003, flush_seconds=0.02)
    case.fit(model, case.data(160), log=log, epochs=2)
    return seen(model)


@ranked
def slow_input(case: Case) -> Any:
    """Rank 1 waits 100 ms for each batch, without prefetching."""

    def slowly(labels: Any) -> Any:
        time.sleep(0.1 * case.rank)
        return labels

    def slow_batch(inputs: Any, labels: Any) -> Any:
        slow_labels = tf.numpy_function(slowly, [labels], tf.int64)
        return inputs, tf.ensure_shape(slow_labels, [None])

    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    model = classifier()
    case.fit(model, case.data().map(slow_batch).with_options(options))
    return seen(model)


@ranked
def waits_for_a_rank(case: Case) -> Any:
    """Rank 0 waits for rank 1 in a reduction."""
    ones = tf.ones(1000)
    reduced = tf.function(lambda: horovod_tensorflow().allreduce(ones, name="waits"))
    return waiting_seconds(lambda: reduced().numpy(), case.rank)


@ranked
def slow_compute(case: Case) -> Any:
    """Rank 1 computes 100 ms longer."""

    def slowly(inputs: Any) -> Any:
        time.sleep(0.1 * case.rank)
        return inputs

    slow = tf.keras.layers.Lambda(
        lambda inputs: tf.ensure_shape(
            tf.numpy_function(slowly, [inputs], tf.float32), inputs.shape
        )
    )
    model = compiled(tf.keras.Sequential([tf.keras.Input([INPUTS]), slow, *layers()]))
    case.fit(model, case.data())
    return seen(model)


@alone
def unknown_length(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.stream(10), epochs=2)
    return seen(model)


@alone
def data_ends_inside_call(case: Case) -> Any:
    """Request two epochs of 10 steps, 4 in a call, with data for 17."""
    model = classifier(steps_per_execution=4)
    case.fit(model, case.stream(17), steps_per_epoch=10, epochs=2)
    return seen(model)


@alone
def generator(case: Case) -> Any:
    inputs, labels = case.arrays(1)

    def endless() -> Any:
        while True:
            yield inputs, labels

    model = classifier()
    case.fit(model, endless(), steps_per_epoch=STEPS, epochs=2)
    return seen(model)


@alone
def sequence(case: Case) -> Any:
    model = classifier()
    case.fit(model, Blocks(case.arrays()), epochs=2)
    return seen(model)


@alone
def petastorm(case: Case) -> Any:
    from petastorm.tf_utils import make_petastorm_dataset
    from row_groups import LABEL, reader, written

    url = written(case.folder / f"rows-{case.rank}", *case.arrays(), rows=BATCH)
    model = classifier()
    with reader(url, num_epochs=None) as rows:
        data = make_petastorm_dataset(rows).map(
            lambda row: (
                tf.stack([getattr(row, f"x{at}") for at in range(INPUTS)], 1),
                getattr(row, LABEL),
            )
        )
        case.fit(model, data, steps_per_epoch=STEPS, epochs=2)
    return seen(model)


@ranked
@alone
def repeats(case: Case) -> Any:
    """Train on samples that are repeated, in batches of different sizes."""

    def batches() -> Any:
        for times in REPEATED:
            inputs, labels = (array[:BATCH] for array in case.arrays())
            yield np.repeat(inputs[:, None], times, axis=1), labels

    shapes = ((None, None, INPUTS), tf.float32), ((None,), tf.int64)
    data = tf.data.Dataset.from_generator(
        batches, output_signature=tuple(tf.TensorSpec(*shape) for shape in shapes)
    )
    tf.keras.utils.set_random_seed(11)
    pooled = tf.keras.layers.GlobalAveragePooling1D()
    model = tf.keras.Sequential([tf.keras.Input([None, INPUTS]), *layers(), pooled])
    case.fit(compiled(model), data, epochs=2)
    return seen(model)


@alone
def arrays(case: Case) -> Any:
    inputs, labels = case.arrays()
    model = classifier()
    # The last batch of an epoch has 5 samples.
    case.fit(model, inputs[:-11], y=labels[:-11], batch_size=BATCH, epochs=2)
    return seen(model)


@alone
def class_weight(case: Case) -> Any:
    inputs, labels = case.arrays()
    model = classifier()
    case.fit(model, inputs, y=labels, batch_size=BATCH, class_weight=dict.fromkeys(range(4), 2.0))
    return seen(model)


@alone
def ragged(case: Case) -> Any:
    lengths = case.random.integers(1, 9, STEPS * BATCH)
    rows = tf.RaggedTensor.from_row_lengths(case.random.integers(0, 50, lengths.sum()), lengths)
    data = tf.data.Dataset.from_tensor_slices((rows, case.arrays()[1])).batch(BATCH)
    tf.keras.utils.set_random_seed(11)
    inputs = tf.keras.Input([None], dtype=tf.int64, ragged=True)
    embedded = tf.keras.layers.Embedding(50, 16)(inputs)
    mean = tf.keras.layers.Lambda(lambda rows: tf.reduce_mean(rows, axis=1))(embedded)
    model = compiled(tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(mean)))
    case.fit(model, data)
    return seen(model)


class Structured(tf.keras.Model):
    """A model of numbers and text in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = tf.keras.layers.Dense(CLASSES)

    def call(self, inputs: Any) -> Any:
        lengths = tf.cast(tf.strings.length(inputs["words"]), tf.float32)
        return self.dense(tf.concat([inputs["numbers"], lengths[:, None]], axis=1))


@alone
def structured(case: Case) -> Any:
    numbers, labels = case.arrays()
    words = np.array(["word" * (1 + index % 3) for index in range(len(labels))])
    data = tf.data.Dataset.from_tensor_slices(
        ({"numbers": numbers, "words": words}, labels, np.ones(len(labels), np.float32))
    ).batch(BATCH)
    tf.keras.utils.set_random_seed(11)
    model = compiled(Structured())
    case.fit(model, data)
    return seen(model)


class Nested(tf.keras.Sequential):
    """A model with batches of a dataset (a variant tensor), None and a scalar."""

    def train_step(self, data: Any) -> Any:
        window, nothing, _scalar = data
        assert nothing is None
        inputs, labels = window
        batch = next(iter(tf.data.Dataset.zip((inputs, labels)).batch(BATCH)))
        return super().train_step(batch)


@alone
def nested_data(case: Case) -> Any:
    windows = tf.data.Dataset.from_tensor_slices(case.arrays()).window(BATCH)
    data = windows.map(lambda inputs, labels: ((inputs, labels), None, 1.5))
    model = classifier(base=Nested)
    case.fit(model, data)
    return seen(model)
