"""Trains many small models, one per case, each with a log folder of its own.

    horovodrun -np 2 python cases.py OUT [CASE …]     every case that needs ranks
    python cases.py OUT [CASE …]                      every case of one process without Horovod

TensorFlow takes long to start, so one launch serves all cases. ``OUT/CASE/logs`` holds the logs,
``OUT/CASE/result-RANK.json`` what the training itself saw, ``OUT/CASE/error-RANK.txt`` what a case
raised.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any, Callable, ClassVar

import numpy as np
import tensorflow as tf
from case_runner import Cases, Messages, run_case, waiting_seconds

from stallscope.keras import StepLogger, gather_logs, synthetic_like

#: Whether this is one of several ranks; otherwise Horovod is not even imported.
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
    """Where a case writes, and what it builds its training from."""

    def __init__(self, out: Path, name: str) -> None:
        self.rank = hvd.rank() if RANKED else 0
        self.size = hvd.size() if RANKED else 1
        self.folder = out / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.random = np.random.default_rng(7 + self.rank)

    def logs(self, name: str = "logs") -> str:
        return str(self.folder / name)

    def logger(self, **options: Any) -> StepLogger:
        return StepLogger(self.logs(), **options)

    def arrays(self, batches: int = STEPS) -> tuple[Any, Any]:
        """Inputs and labels for so many whole batches; every rank has its own."""
        inputs = self.random.random((batches * BATCH, INPUTS), np.float32)
        return inputs, self.random.integers(0, CLASSES, batches * BATCH)

    def data(self, batches: int = STEPS) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(self.arrays(batches)).batch(BATCH)

    def stream(self, batches: int) -> tf.data.Dataset:
        """Data whose length it is not known before its end."""
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
        """``model.fit`` as a user of Horovod calls it."""
        broadcast = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)] if RANKED else []
        callbacks = [*broadcast, *options.pop("callbacks", [log or self.logger()]), Logs()]
        return model.fit(data, callbacks=callbacks, verbose=0, **options)


class Batches(tf.keras.callbacks.Callback):
    """Counts the batches that fit runs."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.count += 1


class Logs(tf.keras.callbacks.Callback):
    """Looks what other callbacks are told of every batch."""

    # As they are: to be told in numbers would have Keras wait for each of them.
    _supports_tf_logs = True
    #: Logs that come from the recorder, of all trainings.
    ours: ClassVar[list[str]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ours.extend(f"log {name}" for name in logs or () if "stallscope" in str(name))


class Trips(tf.keras.callbacks.Callback):
    """Raises in the middle of training, as a callback with a bug does."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self.batch:
            raise RuntimeError("tripped")


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
    """What is left after training: weights, count of updates, and whatever of ours is still there."""
    return {
        "weights": weights_of(model),
        "iterations": int(model.optimizer.iterations.numpy()),
        "ours": ours(model),
        **more,
    }


def weights_of(model: Any) -> str:
    digest = hashlib.sha256()
    for weight in model.get_weights():
        digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()


def ours(model: Any) -> list[str]:
    """What comes from the recorder: attributes of the model and its optimizers, and logs."""
    owners = {"model": model, "optimizer": model.optimizer}
    inner = getattr(model.optimizer, "inner_optimizer", None)
    owners["inner"] = inner
    for name in ("optimizer", "inner"):
        owners[f"{name}.helper"] = getattr(owners[name], "_agg_helper", None)
    return [
        f"{owner_name}.{name}"
        for owner_name, owner in owners.items()
        if owner is not None
        for name, value in vars(owner).items()
        if _is_ours(name, value)
    ] + Logs.ours


def _is_ours(name: str, value: Any) -> bool:
    code = getattr(value, "__code__", None)
    return (
        "stallscope" in name
        or type(value).__module__.startswith("stallscope")
        or (code is not None and f"{os.sep}recorder{os.sep}" in code.co_filename)
    )


def reduction_of(model: Any) -> Any:
    return model.optimizer._allreduce_grads


# -- kinds of data -------------------------------------------------------------------------------


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
    callbacks = [case.logger(run_name="plain run"), batches]
    case.fit(model, data, epochs=2, callbacks=callbacks, validation_data=case.data(3))
    silent = classifier()
    case.fit(silent, data, epochs=2, callbacks=[])
    return seen(
        model,
        batches=batches.count,
        silent=weights_of(silent),
        reduction_is_back=reduction_of(model) is reduction,
    )


@ranked
def gathered(case: Case) -> Any:
    """Ranks that share no folder bring their logs to rank 0's, twice."""
    folder = case.logs(f"logs-{case.rank}")
    model = classifier()
    case.fit(model, case.data(), log=StepLogger(folder))
    return seen(model, files=[len(gather_logs(folder)) for _ in range(2)])


@ranked
def sampled(case: Case) -> Any:
    """Hardly any step in full, in files that are full at once."""
    model = classifier()
    log = case.logger(sample_after=64, sample_one_in=4, max_file_mb=0.003, flush_seconds=0.02)
    case.fit(model, case.data(160), log=log, epochs=2)
    return seen(model)


@ranked
def slow_input(case: Case) -> Any:
    """Rank 1 waits 100 ms for every batch, and nothing fetches it ahead."""

    def slowly(labels: Any) -> Any:
        time.sleep(0.1 * case.rank)
        return labels

    def slow_batch(inputs: Any, labels: Any) -> Any:
        slow_labels = tf.numpy_function(slowly, [labels], tf.int64)
        return inputs, tf.ensure_shape(slow_labels, [None])

    in_turn = tf.data.Options()
    in_turn.experimental_optimization.inject_prefetch = False
    model = classifier()
    case.fit(model, case.data().map(slow_batch).with_options(in_turn))
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
    """Two epochs of 10 steps are asked for, 4 in a call; there is data for 17."""
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


class Blocks(tf.keras.utils.Sequence):
    def __init__(self, arrays: tuple[Any, Any]) -> None:
        self.inputs, self.labels = arrays

    def __len__(self) -> int:
        return len(self.labels) // BATCH

    def __getitem__(self, index: int) -> Any:
        block = slice(index * BATCH, (index + 1) * BATCH)
        return self.inputs[block], self.labels[block]


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
    """Takes a dict of numbers, text and nothing at all."""

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
    """Its batches hold a dataset each (a variant tensor), None and a scalar."""

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


# -- kinds of training ---------------------------------------------------------------------------


@ranked
def accumulation(case: Case) -> Any:
    model = classifier(distributed(backward_passes_per_step=2))
    case.fit(model, case.data())
    return seen(model)


@ranked
def accumulation_left_over(case: Case) -> Any:
    """Horovod keeps the turn that a fit of 7 leaves over, and reduces after the next fit's first."""
    model = classifier(distributed(backward_passes_per_step=2))
    for _ in range(2):
        case.fit(model, case.data(7))
    return seen(model)


class AppliesItself(tf.keras.Sequential):
    """A custom train step whose gradients nobody reduces: the mistake that the recorder reports."""

    def train_step(self, data: Any) -> Any:
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self(inputs, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


class ReducesItself(tf.keras.Sequential):
    """A custom train step that reduces with Horovod's tape."""

    def train_step(self, data: Any) -> Any:
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self(inputs, training=True))
        tape = horovod_tensorflow().DistributedGradientTape(tape)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


class ReducesTwice(tf.keras.Sequential):
    """Two tapes and two optimizers, each for some of the weights, as of two networks in one model."""

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


def horovod_tensorflow() -> Any:
    import horovod.tensorflow

    return horovod.tensorflow


@ranked
def not_reduced(case: Case) -> Any:
    errors_after_step: list[int] = []

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            errors_after_step.append(sum(1 for level, _ in messages.records if level == "ERROR"))

    model = classifier(base=AppliesItself)
    case.fit(model, case.data(), callbacks=[case.logger(), Watch()])
    return seen(model, errors_after_step=errors_after_step)


@ranked
def tape(case: Case) -> Any:
    model = classifier(adam(), base=ReducesItself)
    case.fit(model, case.data())
    return seen(model, made_anew=plain_tape_reduces())


@ranked
def two_tapes(case: Case) -> Any:
    model = classifier(adam(), base=ReducesTwice)
    model.other_optimizer = adam()
    case.fit(model, case.data())
    return seen(model)


def plain_tape_reduces() -> bool:
    """Whether a tape that is made after the training reduces with Horovod's own function."""
    with tf.GradientTape() as tape:
        pass
    reduces = horovod_tensorflow().DistributedGradientTape(tape)._allreduce_grads
    return "stallscope" not in reduces.__module__


class WithUnused(tf.keras.Model):
    """Has a trainable variable that the loss does not use: its gradient is None."""

    def __init__(self) -> None:
        super().__init__()
        self.used = tf.keras.Sequential(layers())
        self.unused = tf.Variable(tf.ones([3]), trainable=True, name="unused")

    def call(self, inputs: Any) -> Any:
        return self.used(inputs)


@ranked
def none_gradient(case: Case) -> Any:
    tf.keras.utils.set_random_seed(11)
    model = compiled(WithUnused())
    case.fit(model, case.data())
    return seen(model)


@ranked
def eager(case: Case) -> Any:
    model = classifier(run_eagerly=True)
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
    """With "auto" Keras' tuner changes how many steps a call runs, here as if it had done so."""

    class Tunes(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model._steps_per_execution.assign(3)

    model = classifier(steps_per_execution="auto")
    # In the place of a tuner that first measures for a minute.
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
def schedule(case: Case) -> Any:
    rate = tf.keras.optimizers.schedules.ExponentialDecay(0.002, 10, 0.5)
    model = classifier(distributed(tf.keras.optimizers.Adam(rate)))
    case.fit(model, case.data())
    return seen(model)


@ranked
def unscaled_rate(case: Case) -> Any:
    model = classifier(distributed(adam(scaled=False)))
    case.fit(model, case.data(4))
    return seen(model)


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


@alone
def callback_called_by_hand(case: Case) -> Any:
    """A loop of the user's calls the callback as fit does, without telling it about the fit."""
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
    """Keras does not know that XLA compiles this train step."""

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
    logger = pickle.loads(pickle.dumps(case.logger()))
    case.fit(model, case.data(), epochs=2, log=logger)
    return seen(model, horovod_imported=any(name.startswith("horovod") for name in sys.modules))


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
    """The last case: Horovod stays initialised. One rank, started without any launcher."""
    import horovod.tensorflow.keras as hvd

    hvd.init()
    model = classifier(hvd.DistributedOptimizer(adam()))
    case.fit(model, case.data())
    return seen(model)


# -- more than one fit ---------------------------------------------------------------------------


@ranked
def second_fit(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data())
    case.fit(model, case.data())
    return seen(model)


@ranked
def second_fit_same_logger(case: Case) -> Any:
    model = classifier()
    logger = case.logger()
    case.fit(model, case.data(), log=logger)
    case.fit(model, case.data().unbatch().batch(BATCH // 2), log=logger)
    return seen(model)


@ranked
def silent_fits(case: Case) -> Any:
    """Fits without the callback, between two with it and after them."""
    model = classifier()
    case.fit(model, case.data())
    case.fit(model, case.data(5), callbacks=[])
    case.fit(model, case.data())
    before = sorted(path.stat().st_size for path in Path(case.logs()).iterdir())
    between = weights_of(model)
    case.fit(model, case.data(5), callbacks=[])
    after = sorted(path.stat().st_size for path in Path(case.logs()).iterdir())
    # The other rank may still close its log while this one looks.
    own = len(list(Path(case.logs()).glob(f"rank-{case.rank:05d}.*")))
    return seen(model, own=own, bytes=[before, after], trained=weights_of(model) != between)


@ranked
def compiled_again(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data())
    compiled(model)
    case.fit(model, case.data())
    return seen(model)


def _interrupted(case: Case, model: Any) -> str:
    try:
        case.fit(model, case.data(), callbacks=[case.logger(), Trips(batch=4)])
    except RuntimeError as error:
        return str(error)
    return "not interrupted"


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
    model, other = classifier(), classifier()
    raised = _interrupted(case, model)
    case.fit(other, case.data(), log=StepLogger(case.logs("other")))
    return seen(model, raised=raised)


@ranked
def fit_inside_fit(case: Case) -> Any:
    """A callback trains another model with a log of its own, as search for settings does."""
    model, inner = classifier(), classifier()

    class Trains(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            case.fit(inner, case.data(4), log=StepLogger(case.logs("inner")))

    case.fit(model, case.data(), epochs=2, callbacks=[case.logger(), Trains()])
    return seen(model)


@ranked
def loaded_on_rank_0(case: Case) -> Any:
    """Rank 0 goes on from a checkpoint; the others hear of it by the broadcast after batch 1."""
    model = classifier()
    if case.rank == 0:
        model.optimizer.iterations.assign(1000)
    case.fit(model, case.data(), epochs=2)
    return seen(model)


class OtherOptimizer(tf.keras.Sequential):
    """Trains with an optimizer that Keras does not know; the compiled one counts nothing."""

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


# -- models that do things their own way ---------------------------------------------------------


@ranked
def own_train_step_on_instance(case: Case) -> Any:
    model = classifier()
    original = model.train_step

    def train_step(data: Any) -> Any:
        return original(data)

    model.train_step = train_step
    case.fit(model, case.data())
    return seen(model, own_is_back=model.train_step is train_step)


class OwnTrainFunction(tf.keras.Sequential):
    """Overrides how fit trains: ``train_step`` is never called."""

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
    """The user has put a train function of his own into the model, without any override."""
    model = classifier()

    @tf.function
    def train_function(iterator: Any) -> Any:
        return model.train_step(next(iterator))

    model.train_function = train_function
    case.fit(model, case.data())
    return seen(model, own_is_back=model.train_function is train_function)


class Wraps(tf.keras.callbacks.Callback):
    """A callback of the user's that puts something around the train function, and leaves it there."""

    def on_train_begin(self, logs: Any = None) -> None:
        found = self.model.train_function
        self.model.train_function = lambda iterator: found(iterator)


@ranked
def wrapped_train_function(case: Case) -> Any:
    """What is around the timer calls it when nothing is recorded any more."""
    model = classifier()
    case.fit(model, case.data(), callbacks=[case.logger(), Wraps()])
    model.fit(case.data(), verbose=0)
    return seen(model)


class TwoStepsPerCall(tf.keras.Sequential):
    """Overrides how fit trains: two train steps per batch that fit counts."""

    def make_train_function(self, force: bool = False) -> Any:
        def train_function(iterator: Any) -> Any:
            self.train_step(next(iterator))
            return self.train_step(next(iterator))

        self.train_function = tf.function(train_function)
        return self.train_function


@ranked
def train_function_made_again(case: Case) -> Any:
    """A callback freezes a layer, which takes a train function that is made anew."""

    class Freezes(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 0:
                self.model.layers[0].trainable = False
                self.model.make_train_function(force=True)

    model = classifier()
    case.fit(model, case.data(), callbacks=[case.logger(), Freezes()], epochs=3)
    return seen(model)


@ranked
def two_steps_per_call(case: Case) -> Any:
    model = classifier(base=TwoStepsPerCall)
    case.fit(model, case.data(10), steps_per_epoch=5)
    return seen(model)


class LogsByNumber(tf.keras.Sequential):
    """Its logs have no names, which could not be put in order beside one."""

    def train_step(self, data: Any) -> Any:
        return dict(enumerate(super().train_step(data).values()))


@ranked
def logs_by_number(case: Case) -> Any:
    model = classifier(base=LogsByNumber)
    case.fit(model, case.data())
    return seen(model)


class ReducesLoss(tf.keras.Sequential):
    """Reduces a tensor without a name of its own: Horovod names it after the op in the graph."""

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


# -- other callbacks -----------------------------------------------------------------------------


class Sleeps(tf.keras.callbacks.Callback):
    """Takes time at both ends of a batch, as a callback of the user's may."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.05)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.05)


@ranked
def sleeper_before(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data(), callbacks=[Sleeps(), case.logger()])
    return seen(model)


@ranked
def sleeper_after(case: Case) -> Any:
    model = classifier()
    case.fit(model, case.data(), callbacks=[case.logger(), Sleeps()])
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
    """Rank 0 saves in every format, as Horovod's guides say; all of them load again."""
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
    # With the optimizer, as training goes on from a checkpoint.
    resumed = hvd.load_model(str(paths["model.h5"])) if case.rank == 0 else None
    if resumed is not None:
        same["resumed"] = int(resumed.optimizer.iterations.numpy()) == 2 * STEPS
    return seen(model, same=same)


# -- synthetic data ------------------------------------------------------------------------------


def shapes(structure: Any) -> Any:
    """Structure, dtypes and shapes, as something that can be compared and printed."""

    def leaf(value: Any) -> str:
        if isinstance(value, tf.RaggedTensor):
            return f"ragged {value.dtype.name} {value.row_lengths().numpy().tolist()}"
        array = np.asarray(value)
        kind = "text" if array.dtype.kind in "OSU" else array.dtype.name
        return f"{type(value).__name__} {kind} {array.shape}"

    return json.loads(json.dumps(tf.nest.map_structure(leaf, structure)))


@ranked
def synthetic(case: Case) -> Any:
    inputs, labels = case.arrays()
    words = np.array(["some", "words"] * (STEPS * BATCH // 2))
    rows = tf.RaggedTensor.from_row_lengths(
        np.arange(2 * STEPS * BATCH), np.tile([1, 3], STEPS * BATCH // 2)
    )
    structure = {"numbers": inputs, "words": words, "flags": labels > 1, "rows": rows}
    dataset = tf.data.Dataset.from_tensor_slices((structure, labels)).batch(BATCH)
    stream = case.stream(3)
    blocks = Blocks((inputs, labels))
    first = {
        "dataset": [next(iter(dataset)), next(iter(synthetic_like(dataset)))],
        "stream": [next(iter(stream)), next(iter(synthetic_like(stream)))],
        "sequence": [blocks[0], synthetic_like(blocks)[0]],
        "generator": [
            (inputs[:3], labels[:3]),
            next(synthetic_like(pair for pair in [(inputs[:3], labels[:3])])),
        ],
        "arrays": [(inputs, labels), synthetic_like((inputs, labels))],
    }
    made = first["dataset"][1]
    try:
        synthetic_like(iter([]))
        refused = ""
    except ValueError as error:
        refused = str(error)
    model = classifier()
    case.fit(model, synthetic_like(case.data()), log=case.logger(synthetic=True), epochs=2)
    return seen(
        model,
        shapes={name: [shapes(real), shapes(like)] for name, (real, like) in first.items()},
        lengths={
            "dataset": int(synthetic_like(dataset).cardinality()),
            "stream": int(synthetic_like(stream).cardinality()),
            "sequence": len(synthetic_like(blocks)),
        },
        same_numbers=bool(np.array_equal(made[0]["numbers"], first["dataset"][0][0]["numbers"])),
        labels_in_range=bool(np.all((made[1] >= 0) & (made[1] < CLASSES))),
        words=sorted({word.decode() for word in made[0]["words"].numpy()}),
        refused=refused,
    )


# -- the recorder itself fails -------------------------------------------------------------------


@ranked
def recorder_breaks(case: Case) -> Any:
    """Something inside the recorder raises in the middle; training and the model must not care."""
    from stallscope.collector.recorder.keras_common import steps

    model = classifier()
    original = steps.CallAssembler.graph_rows

    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("broken on purpose")

    class Breaks(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 6:
                steps.CallAssembler.graph_rows = broken

    batches = Batches()
    reduction = reduction_of(model)
    try:
        callbacks = [case.logger(flush_seconds=0.05), Breaks(), batches, Sleeps()]
        case.fit(model, case.data(), epochs=2, callbacks=callbacks)
    finally:
        steps.CallAssembler.graph_rows = original
    return seen(model, batches=batches.count, reduction_is_back=reduction_of(model) is reduction)


@ranked
def recorder_cannot_start(case: Case) -> Any:
    """Something inside the recorder raises after the model was wrapped: all is undone at once."""
    from stallscope.collector.recorder.tf_keras import instrument

    model = classifier()
    original = instrument.Instrumentation.install

    def broken(self: Any, model: Any) -> None:
        original(self, model)
        raise ZeroDivisionError("broken on purpose")

    instrument.Instrumentation.install = broken
    batches = Batches()
    reduction = reduction_of(model)
    in_training: list[list[str]] = []

    class Looks(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            in_training.append(ours(self.model))

    try:
        case.fit(model, case.data(), callbacks=[case.logger(), batches, Looks()])
    finally:
        instrument.Instrumentation.install = original
    return seen(
        model,
        batches=batches.count,
        in_training=in_training[0],
        reduction_is_back=reduction_of(model) is reduction,
    )


@ranked
def stamping_breaks(case: Case) -> Any:
    """Something inside the recorder raises while the graph is traced."""
    from stallscope.collector.recorder.tf_keras import instrument

    def broken(data: Any) -> Any:
        raise ZeroDivisionError("broken on purpose")

    original, instrument.samples_of = instrument.samples_of, broken
    model = classifier()
    try:
        case.fit(model, case.data())
    finally:
        instrument.samples_of = original
    return seen(model)


# -- running them --------------------------------------------------------------------------------

messages = Messages.of_the_recorder()


def run(out: Path, name: str, case_function: Callable[[Case], Any]) -> None:
    case = Case(out, name)
    if case.rank == 0:
        print(f"case {name}", flush=True)
    tf.keras.backend.clear_session()
    tf.keras.mixed_precision.set_global_policy("float32")
    run_case(case_function, case, case.folder, case.rank, messages)


def main() -> None:
    out, *names = sys.argv[1:]
    if RANKED:
        hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    cases = RANKS if RANKED else ALONE
    for name in names or cases:
        run(Path(out), name, cases[name])


if __name__ == "__main__":
    main()
