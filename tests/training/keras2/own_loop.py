"""Train with Keras 2 in custom loops without ``fit``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from case_runner import REPEATED, Stopwatch, raised_by
from keras2.base import BATCH, RANKED, STEPS, Case, alone, ours_of, ranked, weights_of

from stallscope.collector.recorder.tf_keras import custom_loop
from stallscope.collector.recorder.tf_keras.gradient_marks import Marks
from stallscope.collector.recorder.tf_keras.timestamp_ring import CAPACITY, TimestampRing
from stallscope.keras import StepLogger

if RANKED:
    import horovod.tensorflow as hvd

#: Much longer than the rest of a step, on a busy machine as well.
SLOW_SECONDS = 0.13
MARK_SECONDS = 0.005


class Training:
    """A model, its optimizer, and the data of a rank."""

    def __init__(self, slow_input: bool = False, slow_compute: bool = False) -> None:
        tf.keras.utils.set_random_seed(5)
        self.rank = hvd.rank() if RANKED else 0
        self.model = tf.keras.Sequential([tf.keras.Input([8]), tf.keras.layers.Dense(4)])
        self.optimizer = tf.keras.optimizers.SGD(0.1)
        self.optimizer.build(self.model.trainable_variables)
        self._slow_input, self._slow_compute = slow_input, slow_compute

    def batches(self, count: int = STEPS) -> Iterator[Any]:
        random = np.random.default_rng(self.rank)
        for _ in range(count):
            if self._slow_input:
                time.sleep(SLOW_SECONDS)
            yield tf.constant(random.random((BATCH, 8), np.float32))

    def loss(self, batch: Any) -> Any:
        if self._slow_compute:
            waited = tf.py_function(self._wait, [batch], tf.float32)
            batch = tf.ensure_shape(waited, [BATCH, 8])
        return tf.reduce_mean(self.model(batch) ** 2)

    @staticmethod
    def _wait(batch: Any) -> Any:
        time.sleep(SLOW_SECONDS)
        return batch

    def seen(self) -> dict[str, Any]:
        """Return the weights, and what the recorder has left in model and optimizer."""
        owners = {"model": self.model, "optimizer": self.optimizer}
        return {"weights": weights_of(self.model), "ours": ours_of(owners)}

    def logger(self, folder: Path, **options: Any) -> StepLogger:
        return StepLogger(folder / "logs", model=self.model, optimizer=self.optimizer, **options)


def stepping(training: Training, log: Any, marks_data: bool = False) -> Callable[[Any], None]:
    """Return a step with the tape, which may mark its data; without a log it is not recorded."""

    def step(batch: Any) -> None:
        if marks_data:
            log.mark("data", batch)
        with tf.GradientTape() as tape:
            loss = training.loss(batch)
        if RANKED:
            tape = hvd.DistributedGradientTape(tape)
        if log is not None:
            tape = log.watch(tape)
        variables = training.model.trainable_variables
        training.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    return step


def train(
    training: Training,
    folder: Path,
    in_graph: bool = True,
    fail_at: int = -1,
    marks_data: bool = False,
    epochs: int = 2,
    **options: Any,
) -> Any:
    """Train some epochs; ``marks_data``: the step marks its data, in its graph if it has one."""
    stopwatch = Stopwatch()
    with training.logger(folder) as log:
        step = stepping(training, log, marks_data)
        step = tf.function(step, **options) if in_graph else step
        for _ in range(epochs):
            with log.epoch():
                data = training.batches()
                for number in range(STEPS):
                    with log.step():
                        if number == fail_at:
                            raise OSError("the disk is gone")
                        batch = next(data)
                        if not marks_data:
                            log.mark("data", batch)
                        stopwatch.read()
                        step(batch)
            with log.validation():
                training.loss(batch)
        with log.checkpoint():
            pass
    return {**training.seen(), "stopwatch": stopwatch.times}


def unrecorded() -> str:
    """Train without a logger, and return the weights."""
    training = Training()
    step = tf.function(stepping(training, None))
    for _ in range(2):
        for batch in training.batches():
            step(batch)
    return weights_of(training.model)


@ranked
def loop_eager(case: Case) -> Any:
    return {**train(Training(), case.folder, in_graph=False), "silent": unrecorded()}


@ranked
@alone
def loop_in_a_graph(case: Case) -> Any:
    return {**train(Training(), case.folder), "silent": unrecorded()}


class Repeating(Training):
    """Train on samples that are repeated, in batches of different sizes."""

    def batches(self, count: int = STEPS) -> Iterator[Any]:
        for times, batch in zip(REPEATED, super().batches(count)):
            yield tf.repeat(batch[:, None], times, axis=1)

    def loss(self, batch: Any) -> Any:
        return super().loss(tf.reduce_mean(batch, axis=1))


@ranked
def loop_repeats(case: Case) -> Any:
    return train(Repeating(), case.folder)


@ranked
def loop_traced_once(case: Case) -> Any:
    return train(Repeating(), case.folder, reduce_retracing=True)


class Padded(Training):
    """Train on texts of different lengths, and count their tokens and padding."""

    def __init__(self, has_mask: bool) -> None:
        super().__init__()
        self._has_mask = has_mask
        self.counted: list[list[int]] = []

    def batches(self, count: int = STEPS) -> Iterator[Any]:
        random = np.random.default_rng(self.rank)
        for _ in range(count):
            lengths = random.integers(1, 9, BATCH)
            mask = (np.arange(8) < lengths[:, None]).astype(np.int32)
            self.counted.append([int(mask.sum()), int((1 - mask).sum())])
            about = {"attention_mask": mask} if self._has_mask else {"lengths": lengths}
            inputs = {"inputs": mask * random.random((BATCH, 8), np.float32), **about}
            yield {name: tf.constant(array) for name, array in inputs.items()}

    def loss(self, batch: Any) -> Any:
        return super().loss(tf.cast(batch["inputs"], tf.float32))


@ranked
def loop_padded(case: Case) -> Any:
    training = Padded(has_mask=True)
    return {**train(training, case.folder), "counted": training.counted}


@ranked
@alone
def loop_padded_in_a_graph(case: Case) -> Any:
    training = Padded(has_mask=case.rank == 0)
    return {**train(training, case.folder, marks_data=True), "counted": training.counted}


@alone
def loop_padded_with_lengths(case: Case) -> Any:
    training = Padded(has_mask=False)
    return {**train(training, case.folder, in_graph=False), "counted": training.counted}


@ranked
def loop_raises(case: Case) -> Any:
    training = Training()
    raised = raised_by(lambda: train(training, case.folder, fail_at=5))
    return {**training.seen(), "raised": raised}


@ranked
def loop_resumed(case: Case) -> Any:
    """Record twice: the optimizer counts the steps."""
    training = Training()
    train(training, case.folder)
    return train(training, case.folder)


@ranked
def loop_with_slow_input(case: Case) -> Any:
    return train(Training(slow_input=case.rank == 1), case.folder, epochs=1)


@ranked
def loop_with_slow_compute(case: Case) -> Any:
    return train(Training(slow_compute=case.rank == 1), case.folder, epochs=1)


@ranked
@alone
def loop_marked_by_hand(case: Case) -> Any:
    """Reduce gradients by hand, and mark them in the graph."""
    training = Training()
    variables = training.model.trainable_variables

    with training.logger(case.folder) as log:

        @tf.function
        def step(batch: Any) -> None:
            with tf.GradientTape() as tape:
                loss = training.loss(batch)
            gradients = tape.gradient(loss, variables)
            log.mark("gradients", gradients)
            if RANKED:
                gradients = [hvd.allreduce(gradient) for gradient in gradients]
            log.mark("reduced", gradients)
            training.optimizer.apply_gradients(zip(gradients, variables))

        for batch in training.batches():
            with log.step():
                log.mark("data", batch)
                step(batch)
    return training.seen()


@alone
def loop_of_many_steps(case: Case) -> Any:
    """Make more steps before the first flush than the graph's ring of timestamps has room for."""
    training = Training()
    with training.logger(case.folder, flush_seconds=600.0) as log:

        @tf.function
        def step(batch: Any) -> None:
            log.mark("gradients", [batch * 2.0])

        batch = tf.zeros([4])
        for _ in range(CAPACITY + 10):
            with log.step():
                log.mark("data", batch)
                step(batch)
    return {"steps": CAPACITY + 10}


@alone
def loop_traced_before(case: Case) -> Any:
    """Mark in a later trace than the first, and use the logger and that trace twice."""
    training = Training()
    log = training.logger(case.folder)
    variables = training.model.trainable_variables

    @tf.function
    def step(batch: Any, is_marked: bool = True) -> None:
        with tf.GradientTape() as tape:
            loss = training.loss(batch)
        gradients = (log.watch(tape) if is_marked else tape).gradient(loss, variables)
        training.optimizer.apply_gradients(zip(gradients, variables))

    step(next(training.batches()), is_marked=False)
    for _ in range(2):
        with log:
            for batch in training.batches():
                with log.step():
                    log.mark("data", batch)
                    step(batch)
    return training.seen()


@alone
def loop_with_a_mark_that_breaks(case: Case) -> Any:
    """Let a mark fail while it is traced."""
    training, write = Training(), TimestampRing.write

    def broken(ring: TimestampRing) -> None:
        raise ZeroDivisionError("broken on purpose")

    TimestampRing.write = broken  # type: ignore[method-assign]
    try:
        return train(training, case.folder)
    finally:
        TimestampRing.write = write  # type: ignore[method-assign]


@ranked
def loop_without_marks(case: Case) -> Any:
    """Mark nothing, nest steps, and let the data end inside a step."""
    training = Training()
    with training.logger(case.folder, batch_size=BATCH) as log:
        step = stepping(training, None)
        data = training.batches(3)
        try:
            while True:
                with log.step(), log.step():
                    step(next(data))
        except StopIteration:
            pass
    with log.step():
        pass
    return training.seen()


@alone
def loop_with_wrong_marks(case: Case) -> Any:
    """Set marks at wrong places: none of them raises."""
    training = Training()
    with training.logger(case.folder) as log:
        log.mark("data")

        @tf.function
        def step(batch: Any) -> Any:
            log.mark("gradients")
            return batch

        for batch in training.batches(3):
            with log.step():
                log.mark("data", batch)
                step(batch)
                log.mark("gradient")
    return {}


@alone
def loop_compiled_by_xla(case: Case) -> Any:
    training = Training()
    variables = training.model.trainable_variables
    with training.logger(case.folder) as log:

        @tf.function(jit_compile=True)
        def gradients_of(batch: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = training.loss(batch)
            return log.watch(tape).gradient(loss, variables)

        for batch in training.batches(3):
            with log.step():
                log.mark("data", batch)
                gradients_of(batch)
    return {}


@alone
def loop_while_the_clock_is_set(case: Case) -> Any:
    """In the second of four epochs the wall clock is an hour ahead."""
    training, read = Training(), custom_loop.read_clocks

    def ahead() -> Any:
        now, clock = read()
        return now, clock + 3_600_000_000_000

    try:
        with training.logger(case.folder) as log:
            step = tf.function(stepping(training, log))
            for epoch in range(4):
                custom_loop.read_clocks = ahead if epoch == 1 else read
                with log.epoch():
                    for batch in training.batches():
                        with log.step():
                            log.mark("data", batch)
                            step(batch)
    finally:
        custom_loop.read_clocks = read
    return {}


@alone
def loop_with_slow_marks(case: Case) -> Any:
    """Make marks slow: that is the recorder's time."""
    training, quick = Training(), Marks.mark

    def slow(marks: Marks, name: str, tensors: Any, step: Any) -> None:
        time.sleep(MARK_SECONDS)
        quick(marks, name, tensors, step)

    Marks.mark = slow  # type: ignore[method-assign]
    try:
        with training.logger(case.folder) as log:
            for batch in training.batches():
                with log.step():
                    # Only TensorFlow's tensors are marked without ``Marks.mark``.
                    log.mark("data", batch.numpy())
                    log.mark("data", batch.numpy())
    finally:
        Marks.mark = quick  # type: ignore[method-assign]
    return {"mark_seconds": MARK_SECONDS}


@alone
def loop_inside_fit(case: Case) -> Any:
    """Call ``step`` and ``mark`` inside a fit that the same logger records."""
    training = Training()
    log = training.logger(case.folder)

    class Steps(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            with log.step():
                log.mark("data")

    training.model.compile(training.optimizer, "mse")
    data = np.zeros((3 * BATCH, 8), np.float32), np.zeros((3 * BATCH, 4), np.float32)
    training.model.fit(*data, batch_size=BATCH, callbacks=[log, Steps()], verbose=0)
    return {}


@ranked
def loop_without_a_folder(case: Case) -> Any:
    """Train with a folder for logs that cannot be made."""
    blocked = case.folder / f"a-file-{case.rank}"
    blocked.write_text("")
    return {**train(Training(), blocked), "silent": unrecorded()}
