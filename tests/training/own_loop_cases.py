"""Loops without ``fit``, each case with a log folder of its own.

    horovodrun -np 2 python own_loop_cases.py OUT     with Horovod's tape
    python own_loop_cases.py OUT                      one process

``OUT/CASE/logs`` holds the logs, ``OUT/CASE/result-RANK.json`` what the case saw.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from case_runner import Cases, Messages

from stallscope.collector.recorder.tf_keras import custom_loop
from stallscope.collector.recorder.tf_keras.marks import Marks
from stallscope.collector.recorder.tf_keras.timestamp_ring import CAPACITY
from stallscope.keras import StepLogger

RANKED = "HOROVOD_RANK" in os.environ
if RANKED:
    import horovod.tensorflow as hvd

STEPS = 12
BATCH = 16
#: Much longer than what a step takes besides, on a busy machine as well.
SLOW_SECONDS = 0.13
MARK_SECONDS = 0.005

CASES = Cases()
case = CASES.add


class Training:
    """A model, its optimizer, and one rank's data."""

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

    def weights(self) -> str:
        return hashlib.sha256(self.model.get_weights()[0].tobytes()).hexdigest()

    def logger(self, out: Path, **options: Any) -> StepLogger:
        return StepLogger(out / "logs", model=self.model, optimizer=self.optimizer, **options)


def stepping(training: Training, log: Any) -> Callable[[Any], None]:
    """One step with the tape; ``log`` None trains unrecorded."""

    def step(batch: Any) -> None:
        with tf.GradientTape() as tape:
            loss = training.loss(batch)
        if RANKED:
            tape = hvd.DistributedGradientTape(tape)
        if log is not None:
            tape = log.watch(tape)
        variables = training.model.trainable_variables
        training.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    return step


def train(training: Training, out: Path, in_graph: bool) -> Any:
    with training.logger(out) as log:
        step = stepping(training, log)
        step = tf.function(step) if in_graph else step
        for _ in range(2):
            with log.epoch():
                data = training.batches()
                for _ in range(STEPS):
                    with log.step():
                        batch = next(data)
                        log.mark("data", batch)
                        step(batch)
            with log.validation():
                training.loss(batch)
        with log.checkpoint():
            pass
    return training.weights()


@case
def eager(out: Path) -> Any:
    return train(Training(), out, in_graph=False)


@case
def graph(out: Path) -> Any:
    return train(Training(), out, in_graph=True)


@case
def unrecorded(_: Path) -> Any:
    """The same training without a logger: what is learned must be the same."""
    training = Training()
    step = tf.function(stepping(training, None))
    for _ in range(2):
        for batch in training.batches():
            step(batch)
    return training.weights()


@case
def slow_input(out: Path) -> Any:
    rank = hvd.rank() if RANKED else 0
    return train(Training(slow_input=rank == 0), out, in_graph=True)


@case
def slow_compute(out: Path) -> Any:
    rank = hvd.rank() if RANKED else 0
    return train(Training(slow_compute=rank == 0), out, in_graph=True)


@case
def marked_by_hand(out: Path) -> Any:
    """Who reduces gradients himself marks them himself, in the graph with the tensors."""
    training = Training()
    variables = training.model.trainable_variables

    with training.logger(out) as log:

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
    return training.weights()


@case
def many_steps(out: Path) -> Any:
    """More than a graph keeps marks of, before anything is flushed."""
    if RANKED:
        return None
    training = Training()
    with training.logger(out, flush_seconds=600.0) as log:

        @tf.function
        def step(batch: Any) -> None:
            log.mark("gradients", [batch * 2.0])

        batch = tf.zeros([4])
        for _ in range(CAPACITY + 10):
            with log.step():
                log.mark("data", batch)
                step(batch)
    return CAPACITY + 10


@case
def only_steps(out: Path) -> Any:
    """Nothing is marked; the data ends inside of a step; a step lies in another one."""
    training = Training()
    with training.logger(out, batch_size=BATCH) as log:
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
    return training.weights()


@case
def wrong_marks(out: Path) -> Any:
    """Marks that cannot be: none of them reaches training."""
    training = Training()
    with training.logger(out) as log:
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
    return None


@case
def compiled_by_xla(out: Path) -> Any:
    training = Training()
    variables = training.model.trainable_variables
    with training.logger(out) as log:

        @tf.function(jit_compile=True)
        def gradients_of(batch: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = training.loss(batch)
            return log.watch(tape).gradient(loss, variables)

        for batch in training.batches(3):
            with log.step():
                log.mark("data", batch)
                gradients_of(batch)
    return None


@case
def clock_set(out: Path) -> Any:
    """For the second of four epochs the wall clock is an hour ahead."""
    training, read = Training(), custom_loop.read_clocks

    def ahead() -> Any:
        now, clock = read()
        return now, clock + 3_600_000_000_000

    try:
        with training.logger(out) as log:
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
    return None


@case
def slow_marks(out: Path) -> Any:
    """Marks that take time, which is the recorder's."""
    training, quick = Training(), Marks.mark_data_again

    def slow(marks: Marks, first: Any, now: int) -> None:
        time.sleep(MARK_SECONDS)
        quick(marks, first, now)

    Marks.mark_data_again = slow  # type: ignore[method-assign]
    try:
        with training.logger(out) as log:
            for batch in training.batches():
                with log.step():
                    log.mark("data", batch)
                    log.mark("data", batch)
    finally:
        Marks.mark_data_again = quick  # type: ignore[method-assign]
    return MARK_SECONDS


@case
def inside_fit(out: Path) -> Any:
    """The callback's own fit is recorded, and not what is inside of it a second time."""
    training = Training()
    log = training.logger(out)

    class Steps(tf.keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            with log.step():
                log.mark("data")

    training.model.compile(training.optimizer, "mse")
    data = np.zeros((3 * BATCH, 8), np.float32), np.zeros((3 * BATCH, 4), np.float32)
    training.model.fit(*data, batch_size=BATCH, callbacks=[log, Steps()], verbose=0)
    return None


@case
def no_folder(out: Path) -> Any:
    """A folder that cannot be made costs the log, and says so."""
    out.mkdir(parents=True, exist_ok=True)
    rank = hvd.rank() if RANKED else 0
    blocked = out / f"a-file-{rank}"
    blocked.write_text("")
    return train(Training(), blocked, in_graph=True)


def main() -> None:
    out = Path(sys.argv[1])
    if RANKED:
        hvd.init()
    rank = hvd.rank() if RANKED else 0
    messages = Messages.of_the_recorder()
    for name, function in CASES.items():
        messages.records.clear()
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        weights = function(folder)
        found = {"weights": weights, "said": [message for _, message in messages.records]}
        (folder / f"result-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
