"""What recording costs per step: no callback, the callback, the Horovod Timeline, in turns.

    HOROVOD_TIMELINE=DYNAMIC horovodrun -np 2 python benchmarks/keras_overhead.py OUT ROUNDS STEPS

The arms take turns within one process, in another order every round, on the same model and data, so
that what the machine does besides hits all of them alike. Writes OUT/result.json: for every arm and
round the lower quartile of step times on rank 0, and the bytes that were written per step.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from pathlib import Path

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from stallscope.keras import StepLogger

# Many small layers: the Timeline's cost grows with the number of gradients, ours does not.
LAYERS = 80
WIDTH = 128
BATCH = 32
# Tracing and the first negotiation of every tensor are over by then.
SKIPPED = 15

ARMS = ("none", "callback", "timeline")


class Clock(tf.keras.callbacks.Callback):
    """When every batch began."""

    _supports_tf_logs = True

    def __init__(self) -> None:
        super().__init__()
        self.began: list[int] = []

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        self.began.append(time.perf_counter_ns())

    def quartile_ms(self) -> float:
        """The lower quartile of the steps: the upper ones tell what else the machine was doing."""
        laps = [b - a for a, b in zip(self.began, self.began[1:])][SKIPPED:]
        return statistics.quantiles(laps, n=4)[0] / 1e6


def network() -> tf.keras.Model:
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = tf.keras.Sequential([tf.keras.Input((WIDTH,)), *layers, tf.keras.layers.Dense(10)])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.001))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def run_arm(arm: str, model: tf.keras.Model, data: tf.data.Dataset, steps: int, out: Path) -> float:
    clock = Clock()
    callbacks = [clock]
    if arm == "callback":
        callbacks.append(StepLogger(out))
    if arm == "timeline":
        hvd.start_timeline(str(out / f"timeline-{hvd.rank()}.json"))
    # A fresh trace for every arm, as the callback's needs one.
    model.train_function = None
    model.fit(data, steps_per_epoch=steps, epochs=1, callbacks=callbacks, verbose=0)
    if arm == "timeline":
        hvd.stop_timeline()
    return clock.quartile_ms()


def main() -> None:
    out = Path(sys.argv[1])
    rounds, steps = int(sys.argv[2]), int(sys.argv[3])
    hvd.init()
    model = network()
    x = tf.random.stateless_normal((BATCH, WIDTH), (1, 2))
    data = tf.data.Dataset.from_tensors((x, tf.zeros(BATCH, tf.int32))).repeat()
    order = random.Random(7)
    step_ms: dict[str, list[float]] = {arm: [] for arm in ARMS}
    sizes: dict[str, list[float]] = {"callback": [], "timeline": []}
    run_arm("none", model, data, steps, out)
    for number in range(rounds):
        for arm in order.sample(ARMS, len(ARMS)):
            folder = out / f"{number}-{arm}"
            if hvd.rank() == 0:
                folder.mkdir(parents=True, exist_ok=True)
            hvd.allreduce(tf.constant(0.0), name=f"{number}-{arm}")
            step_ms[arm].append(run_arm(arm, model, data, steps, folder))
            if arm in sizes and hvd.rank() == 0:
                time.sleep(0.5)  # the Timeline's writer is a thread of its own
                suffix = ".steps.csv" if arm == "callback" else ".json"
                ranks = hvd.size() if arm == "callback" else 1
                own = sum(
                    p.stat().st_size for p in folder.glob(f"*{suffix}") if p.name != "run.json"
                )
                sizes[arm].append(own / steps / ranks)
    if hvd.rank() == 0:
        result = {
            "ranks": hvd.size(),
            "steps": steps,
            "gradients": len(model.trainable_variables),
            "step_ms": step_ms,
            "bytes_per_step": {arm: statistics.median(size) for arm, size in sizes.items()},
        }
        (out / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
