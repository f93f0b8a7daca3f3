"""Trains two models of one kind in turns, one of them with the callback, each with and without the
Horovod Timeline, for keras_overhead.py.

    export HOROVOD_TIMELINE=DYNAMIC
    horovodrun -np 2 python benchmarks/keras_overhead_training.py OUT ROUNDS STEPS

Each model is in one long ``fit`` on a thread of its own, and only one of them moves at a time: for a
block of a few steps, in another order every round. No graph is traced again, so that blocks can be
short, and what the machine does besides hits all arms alike. All ranks draw the same order.

Writes OUT/result.json: for every arm and round the median step of rank 0, what processors worked for one
in all threads of the process, and where that block's timeline is; and OUT/logs, the step logs.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from pathlib import Path

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from stallscope.keras import StepLogger

# Many small layers: the Timeline's cost grows with the number of gradients, ours does not.
LAYERS = 80
WIDTH = 128
BATCH = 32
# The first steps of a block still run on what the other arm left in the caches.
SKIPPED = 2
# The Timeline's events are written by a thread of their own, which comes behind.
SETTLES_SECONDS = 0.05
# Tracing, and the first negotiation of every tensor, are over by then.
WARM_UP_ROUNDS = 3

PLAIN = ("none", "timeline")
RECORDED = ("callback", "both")
WITH_TIMELINE = ("timeline", "both")


class Turns:
    """Whose turn it is: blocks of steps, one arm each."""

    def __init__(self, rounds: int) -> None:
        order = random.Random(7)
        arms = PLAIN + RECORDED
        self.blocks = [arm for _ in range(rounds) for arm in order.sample(arms, len(arms))]
        self.at = 0
        self._changed = threading.Condition()

    def await_own(self, arms: tuple[str, ...]) -> str:
        with self._changed:
            self._changed.wait_for(lambda: self.blocks[self.at] in arms)
            return self.blocks[self.at]

    def next(self) -> None:
        with self._changed:
            self.at += 1
            self._changed.notify_all()

    def any_left(self, arms: tuple[str, ...]) -> bool:
        return any(arm in arms for arm in self.blocks[self.at :])


class Blocks(tf.keras.callbacks.Callback):
    """Lets its model move in its own blocks only, and times their steps."""

    _supports_tf_logs = True

    def __init__(self, turns: Turns, arms: tuple[str, ...], steps: int, out: Path) -> None:
        super().__init__()
        self.medians_ms: dict[str, list[float]] = {arm: [] for arm in arms}
        self.processors_ms: dict[str, list[float]] = {arm: [] for arm in arms}
        self._turns, self._arms, self._steps, self._out = turns, arms, steps, out
        self._arm = ""
        self._began: list[int] = []
        self._worked_before = 0

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        if not self._began:
            self._arm = self._turns.await_own(self._arms)
            if self._arm in WITH_TIMELINE:
                hvd.start_timeline(timeline_path(self._out, self._turns.at))
            self._worked_before = time.process_time_ns()
        self._began.append(time.perf_counter_ns())

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if len(self._began) < self._steps:
            return
        self._began.append(time.perf_counter_ns())
        laps = [b - a for a, b in zip(self._began, self._began[1:])][SKIPPED:]
        self.medians_ms[self._arm].append(statistics.median(laps) / 1e6)
        # In every arm: Horovod's own thread looks for work meanwhile.
        time.sleep(SETTLES_SECONDS)
        worked = time.process_time_ns() - self._worked_before
        self.processors_ms[self._arm].append(worked / self._steps / 1e6)
        if self._arm in WITH_TIMELINE:
            hvd.stop_timeline()
            time.sleep(SETTLES_SECONDS)
        self._began = []
        self._turns.next()
        self.model.stop_training = not self._turns.any_left(self._arms)


def timeline_path(out: Path, block: int) -> str:
    return str(out / f"timeline-{hvd.rank()}-{block:05d}.json")


def network() -> tf.keras.Model:
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = tf.keras.Sequential([tf.keras.Input((WIDTH,)), *layers, tf.keras.layers.Dense(10)])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.001))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def train(model: tf.keras.Model, data: tf.data.Dataset, callbacks: list) -> None:
    # The recorder's callback comes last: what it does at the end of a step is inside the lap.
    model.fit(data, steps_per_epoch=10**7, epochs=1, callbacks=callbacks, verbose=0)


def main() -> None:
    out = Path(sys.argv[1])
    rounds, steps = int(sys.argv[2]), int(sys.argv[3])
    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    x = tf.random.stateless_normal((BATCH, WIDTH), (1, 2))
    data = tf.data.Dataset.from_tensors((x, tf.zeros(BATCH, tf.int32))).repeat()
    turns = Turns(WARM_UP_ROUNDS + rounds)
    plain, recorded = (Blocks(turns, arms, steps, out) for arms in (PLAIN, RECORDED))
    threads = [
        threading.Thread(target=train, args=(network(), data, [plain])),
        threading.Thread(
            target=train, args=(network(), data, [recorded, StepLogger(out / "logs")])
        ),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if hvd.rank() == 0:
        medians = {**plain.medians_ms, **recorded.medians_ms}
        processors = {**plain.processors_ms, **recorded.processors_ms}
        timelines: dict[str, list[str]] = {arm: [] for arm in WITH_TIMELINE}
        for block, arm in enumerate(turns.blocks):
            if arm in WITH_TIMELINE:
                timelines[arm].append(timeline_path(out, block))
        result = {
            "ranks": hvd.size(),
            "gradients": 2 * (LAYERS + 1),
            "step_ms": {arm: own[WARM_UP_ROUNDS:] for arm, own in medians.items()},
            "processors_ms": {arm: own[WARM_UP_ROUNDS:] for arm, own in processors.items()},
            "timelines": {arm: own[WARM_UP_ROUNDS:] for arm, own in timelines.items()},
        }
        (out / "result.json").write_text(json.dumps(result))
        time.sleep(0.5)


if __name__ == "__main__":
    main()
