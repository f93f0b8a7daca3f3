"""Train many small Keras 3 models on one backend, one per case, each with its own log folder.

    KERAS_BACKEND=torch python keras3_cases.py OUT [CASE …]

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Callable, ClassVar

import keras
import numpy as np
from case_runner import REPEATED, Cases, Stopwatch, digest, raised_by, run_cases

from stallscope.keras import StepLogger, measure_input, probe_input, synthetic_like

BACKEND = keras.backend.backend()
BATCH = 16
STEPS = 12
INPUTS = 8
CLASSES = 4
#: Much longer than the rest of a step, on a busy machine as well.
SLOW_SECONDS = 0.12

CASES = Cases()


def case(*backends: str) -> Callable[[Callable[[Case], Any]], Callable[[Case], Any]]:
    """Add a case of some backends; of all if none is named."""

    def add(function: Callable[[Case], Any]) -> Callable[[Case], Any]:
        if not backends or BACKEND in backends:
            CASES.add(function)
        return function

    return add


class Case:
    """The folder and the data of a case."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.random = np.random.default_rng(7)

    def logger(self, name: str = "logs", **options: Any) -> StepLogger:
        return StepLogger(self.folder / name, **options)

    def arrays(self, steps: int = STEPS) -> tuple[Any, Any]:
        inputs = self.random.random((steps * BATCH, INPUTS), np.float32)
        return inputs, self.random.integers(0, CLASSES, steps * BATCH)

    def batches(self, steps: int | None = None, seconds: float = 0.0) -> Any:
        """Yield batches, with a delay before each."""
        inputs, labels = self.arrays(1)
        number = 0
        while steps is None or number < steps:
            if seconds:
                time.sleep(seconds)
            yield inputs, labels
            number += 1


def model(*layers: Any, optimizer: Any = None, **options: Any) -> Any:
    keras.utils.set_random_seed(11)
    built = keras.Sequential(
        [keras.Input((INPUTS,)), keras.layers.Dense(16), *layers, keras.layers.Dense(CLASSES)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    built.compile(optimizer or keras.optimizers.SGD(0.1), loss, **options)
    return built


def fit(built: Any, data: Any, callbacks: Any = (), **options: Any) -> Any:
    x, y = data if isinstance(data, tuple) else (data, None)
    options = {"epochs": 2, "verbose": 0, "shuffle": False, **options}
    if isinstance(data, tuple):
        options["batch_size"] = BATCH
    built.fit(x, y, callbacks=[*callbacks, Logs()], **options)
    return seen(built)


class Logs(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Collect the recorder's entries in the logs that Keras passes to callbacks."""

    #: The recorder's entries of all trainings.
    ours: ClassVar[list[str]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ours.extend(f"log {name}" for name in logs or () if "stallscope" in name)


def seen(built: Any, **more: Any) -> dict[str, Any]:
    """Return the weights, and what the recorder has left behind in the model or put into logs."""
    ours = [
        name
        for name in ("train_function", "save", "save_weights", "_autoconvert_optionals")
        if "stallscope" in str(getattr(vars(built).get(name), "__module__", ""))
    ]
    owned = vars(built.optimizer).get("apply")
    return {
        "weights": digest(built.get_weights()),
        "ours": ours + (["apply"] if owned is not None else []) + Logs.ours,
        **more,
    }


def noting(threads: set[str]) -> Any:
    """Return a callback that notes the threads during training."""

    def note(epoch: int, logs: Any) -> None:
        threads.update(thread.name for thread in threading.enumerate())

    return keras.callbacks.LambdaCallback(on_epoch_end=note)


class Slow(keras.layers.Layer):
    """Add nothing, with a delay within the computation."""

    def call(self, inputs: Any) -> Any:
        return inputs + _slow_zeros(inputs)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


def _slow_zeros(inputs: Any) -> Any:
    def zeros(array: Any) -> Any:
        time.sleep(SLOW_SECONDS)
        return np.zeros_like(array)

    if BACKEND == "jax":
        import jax

        like = jax.ShapeDtypeStruct(inputs.shape, inputs.dtype)
        return jax.pure_callback(zeros, like, jax.lax.stop_gradient(inputs))
    if BACKEND == "tensorflow":
        import tensorflow as tf

        delayed = tf.numpy_function(zeros, [tf.stop_gradient(inputs)], inputs.dtype, stateful=True)
        return tf.ensure_shape(delayed, inputs.shape)
    if inputs.device.type == "cpu":
        time.sleep(SLOW_SECONDS)
    return 0.0


@case()
def plain(case: Case) -> Any:
    data = case.arrays()
    silent = fit(model(), data)["weights"]
    saving = keras.callbacks.ModelCheckpoint(
        case.folder / "{epoch}.weights.h5", save_weights_only=True
    )
    logger = case.logger(run_name="plain run")
    listed = keras.callbacks.CallbackList([logger])
    built = model()
    results = fit(built, data, [logger, saving], validation_data=data)
    return {**results, "silent": silent, "async": listed._async_train}


class Timed(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Read a stopwatch before each batch; with logs at its end, Keras waits for the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.stopwatch = Stopwatch()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.stopwatch.read()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        float(logs["loss"])


@case()
def timed(case: Case) -> Any:
    timed = Timed()
    results = fit(model(), case.arrays(), [case.logger(), timed])
    return {**results, "stopwatch": timed.stopwatch.times}


@case()
def second_fit(case: Case) -> Any:
    built, data = model(), case.arrays()
    fit(built, data, [case.logger()])
    return fit(built, data, [case.logger()])


@case()
def raises(case: Case) -> Any:
    class Trips(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 4:
                raise OSError("the disk is gone")

    built, data = model(), case.arrays()
    raised = raised_by(lambda: fit(built, data, [case.logger(), Trips()]))
    # Keras calls no callback after an exception: the next fit of any model removes what is left.
    fit(model(), data, [case.logger("next")])
    return {"raised": raised, "ours": seen(built)["ours"]}


@case()
def slow_input(case: Case) -> Any:
    data = case.batches(seconds=SLOW_SECONDS)
    return fit(model(), data, [case.logger()], steps_per_epoch=STEPS, epochs=1)


@case()
def slow_layer(case: Case) -> Any:
    threads: set[str] = set()
    data = case.arrays()
    results = fit(model(Slow()), data, [case.logger(), noting(threads)], epochs=1)
    return {**results, "threads": list(threads)}


class Late:
    """A result whose readiness a busy thread sees late."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def block_until_ready(self) -> None:
        self._array.block_until_ready()
        time.sleep(0.01)


@case("jax")
def results_seen_late(case: Case) -> Any:
    """Start validation before the recorder sees that the epoch's steps are done."""
    from stallscope.collector.recorder.jax.jax_results import ResultTimes

    original = ResultTimes.add
    ResultTimes.add = lambda times, array: original(times, Late(array))
    try:
        return fit(model(), case.arrays(), [case.logger()], validation_data=case.arrays(1))
    finally:
        ResultTimes.add = original


@case()
def slow_callback(case: Case) -> Any:
    def slow(batch: int, logs: Any) -> None:
        time.sleep(SLOW_SECONDS)

    callback = keras.callbacks.LambdaCallback(on_train_batch_begin=slow)
    return fit(model(), case.arrays(), [callback, case.logger()], epochs=1)


@case()
def unknown_length(case: Case) -> Any:
    return fit(model(), case.batches(STEPS), [case.logger()], epochs=1)


@case()
def accumulation(case: Case) -> Any:
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    return fit(model(optimizer=optimizer), case.arrays(), [case.logger()])


@case()
def eager(case: Case) -> Any:
    return fit(model(run_eagerly=True), case.arrays(), [case.logger()])


@case("tensorflow", "jax")
def several_per_call(case: Case) -> Any:
    return fit(model(steps_per_execution=4), case.arrays(), [case.logger()])


@case("tensorflow")
def compiled(case: Case) -> Any:
    return fit(model(jit_compile=True), case.arrays(), [case.logger()])


@case("tensorflow")
def compiled_several_per_call(case: Case) -> Any:
    built = model(jit_compile=True, steps_per_execution=4)
    return fit(built, case.arrays(), [case.logger()])


@case("tensorflow")
def pipeline(case: Case) -> Any:
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(case.arrays()).batch(BATCH)
    results = fit(model(), data, [case.logger()])
    return {**results, "input": str(measure_input(data, 10)), "like": len(synthetic_like(data))}


@case("torch")
def data_loader(case: Case) -> Any:
    import torch

    data = torch.utils.data.TensorDataset(*map(torch.tensor, case.arrays()))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
    results = fit(model(), loader, [case.logger()])
    fit(model(), synthetic_like(loader), epochs=1)
    return {**results, "input": str(measure_input(loader, 10)), "like": len(synthetic_like(loader))}


@case()
def last_batch_smaller(case: Case) -> Any:
    x, y = case.arrays(3)
    data = x[: 2 * BATCH + 8], y[: 2 * BATCH + 8]
    return fit(model(), data, [case.logger()], shuffle=True)


@case()
def repeats(case: Case) -> Any:
    """Train on samples that are repeated, in batches of different sizes."""
    keras.utils.set_random_seed(11)
    built = keras.Sequential(
        [
            keras.Input((None, INPUTS)),
            keras.layers.Dense(CLASSES),
            keras.layers.GlobalAveragePooling1D(),
        ]
    )
    built.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    def batches() -> Any:
        for times, (inputs, labels) in zip(2 * REPEATED, case.batches()):
            yield np.repeat(inputs[:, None], times, axis=1), labels

    data: Any = batches()
    if BACKEND == "tensorflow":
        import tensorflow as tf

        # Keras would take the lengths of the first two batches for those of all.
        shapes = ((None, None, INPUTS), tf.float32), ((None,), tf.int64)
        specs = tuple(tf.TensorSpec(*shape) for shape in shapes)
        data = tf.data.Dataset.from_generator(batches, output_signature=specs)
    return fit(built, data, [case.logger()], steps_per_epoch=STEPS)


@case()
def without_stages(case: Case) -> Any:
    threads: set[str] = set()
    results = fit(model(), case.arrays(), [case.logger(stages=False), noting(threads)])
    return {**results, "threads": list(threads)}


@case()
def train_function_made_again(case: Case) -> Any:
    class MakesAgain(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 0:
                self.model.make_train_function(force=True)

    return fit(model(), case.arrays(), [case.logger(), MakesAgain()], epochs=3)


@case()
def two_loggers(case: Case) -> Any:
    return fit(model(), case.arrays(), [case.logger(), case.logger("second")])


@case()
def recorder_breaks(case: Case) -> Any:
    from stallscope.collector.recorder.keras3 import keras3_recording

    data, built = case.arrays(), model()
    silent = fit(model(), data)["weights"]
    original = keras3_recording.Recording._record_facts

    def broken(self: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    keras3_recording.Recording._record_facts = broken
    try:
        return {**fit(built, data, [case.logger()]), "silent": silent}
    finally:
        keras3_recording.Recording._record_facts = original


@case()
def no_folder(case: Case) -> Any:
    (case.folder / "file").write_text("")
    return fit(model(), case.arrays(), [case.logger("file")])


class Sequence(keras.utils.PyDataset):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        return np.full((BATCH, INPUTS), index, np.float32), np.arange(BATCH) % CLASSES


@case()
def dataset_of_python(case: Case) -> Any:
    results = fit(model(), Sequence(), [case.logger(synthetic=True)])
    synthetic_data = synthetic_like(Sequence())
    fit(model(), synthetic_data, epochs=1)
    labels = np.asarray(synthetic_data[0][1])
    like = [
        len(synthetic_data),
        synthetic_data[0][0].shape,
        str(synthetic_data[0][0].dtype),
        int(labels.min()),
        int(labels.max()),
    ]
    generated = next(synthetic_like(case.batches(3)))
    arrays = synthetic_like(case.arrays())
    return {
        **results,
        "like": like,
        "generated": [len(generated), generated[0].shape],
        "arrays": arrays[0].shape,
        "input": str(measure_input(Sequence(), 10)),
    }


class Texts(keras.utils.PyDataset):
    """Texts of different lengths, as KerasHub makes batches of them."""

    def __len__(self) -> int:
        return STEPS

    def mask(self, index: int) -> Any:
        lengths = np.random.default_rng(index).integers(1, INPUTS + 1, (BATCH, 1))
        return (np.arange(INPUTS) < lengths).astype("int32")

    def __getitem__(self, index: int) -> Any:
        mask = self.mask(index)
        ids = mask * (1 + np.arange(INPUTS, dtype="int32"))
        return {"token_ids": ids, "padding_mask": mask}, ids.max(axis=1) % CLASSES


@case()
def padded(case: Case) -> Any:
    ids, mask = (
        keras.Input((INPUTS,), dtype="int32", name=name) for name in ("token_ids", "padding_mask")
    )
    embedded = keras.layers.Embedding(100, 8)(ids) * keras.ops.expand_dims(mask, -1)
    outputs = keras.layers.Dense(CLASSES)(keras.ops.sum(embedded, axis=1))
    built = keras.Model({"token_ids": ids, "padding_mask": mask}, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    built.compile(keras.optimizers.SGD(0.1), loss)
    texts = Texts()
    masks = [texts.mask(index) for index in range(STEPS)] * 2
    counted = [[int(mask.sum()), int((1 - mask).sum())] for mask in masks]
    return {**fit(built, texts, [case.logger()]), "counted": counted}


def _probed(case: Case, data: Any, batches: int | None = 6, **options: Any) -> Any:
    """Train on data without and with an input probe of so many batches; None leaves that to the data."""
    silent = fit(model(keras.layers.Dropout(0.1, seed=5)), data, **options)["weights"]
    built = model(keras.layers.Dropout(0.1, seed=5))
    log = case.logger(probe_input=batches, probe_every=12)
    return {**fit(built, data, [log], **options), "silent": silent}


@case()
def probed(case: Case) -> Any:
    return _probed(case, Sequence())


@case()
def probed_over_epochs(case: Case) -> Any:
    """Fetch batches ahead where one iterator serves all epochs, and threads make batches."""

    class Endless(Sequence):
        num_batches = None
        __len__ = None  # type: ignore[assignment]

    return _probed(case, Endless(workers=2), steps_per_epoch=STEPS)


@case("torch", "tensorflow")
def probed_loader(case: Case) -> Any:
    """Fetch batches of the backend's own kind of loader ahead."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        tensors = tf.data.Dataset.from_tensor_slices(case.arrays())
        return _probed(case, probe_input(tensors.batch(BATCH), 6), None)
    import torch

    data = torch.utils.data.TensorDataset(*map(torch.tensor, case.arrays()))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, num_workers=2)
    return _probed(case, probe_input(loader, 6), None)


@case()
def probe_refused(case: Case) -> Any:
    """Ask for a probe of data that cannot have one."""
    log = case.logger(probe_input=6, probe_every=12)
    return fit(model(), case.batches(), [log], steps_per_epoch=STEPS)


def main() -> None:
    if BACKEND == "torch":
        import torch

        torch.set_num_threads(1)
    out, *names = sys.argv[1:]
    warnings.simplefilter("ignore")
    os.chdir(Path(out).parent)
    run_cases(CASES, Path(out), names, 0, Case)


if __name__ == "__main__":
    main()
