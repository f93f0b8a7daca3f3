"""Train cells of the scorecard with TF-Keras and Horovod; real.py starts it.

horovodrun -np 2 python benchmarks/scorecard/train_keras.py CELLS OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

from injection import Injection, Launch, Machine

MACHINE = Machine.of_this_rank()

import horovod.tensorflow.keras as hvd  # noqa: E402  # after pinning: it makes threads
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from cells import read_cells  # noqa: E402
from horovod.tensorflow import broadcast_object  # noqa: E402
from train_pairs_keras import AfterBatch, Hook, after  # noqa: E402

from stallscope.keras import StepLogger  # noqa: E402

# Few parameters and many samples: steps that are mostly a fixed amount of work.
BATCH = MACHINE.samples(6144)
WIDTH = 64
LAYERS = 2


def data(injection: Injection) -> tf.data.Dataset:
    """Yield one batch again and again, each delayed by the fault, with no prefetching to hide it."""
    generator = np.random.default_rng(hvd.rank())
    x = tf.constant(generator.standard_normal((BATCH, WIDTH), np.float32))
    y = tf.constant(generator.integers(0, 10, BATCH))
    numbers = tf.data.Dataset.range(1).repeat()
    options = tf.data.Options()
    options.autotune.enabled = False
    return numbers.map(lambda n: (after(injection.here, "input", n, x), y)).with_options(options)


def network(injection: Injection) -> tf.keras.Model:
    def here(stage: str) -> None:
        injection.here(stage)
        MACHINE.wait_for_device()

    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = tf.keras.Sequential(
        [tf.keras.Input((WIDTH,)), Hook(here), *layers, tf.keras.layers.Dense(10)],
        name="scorecard",
    )
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.001))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def train(injection: Injection, log_dir: Path, steps: int) -> None:
    tf.keras.backend.clear_session()
    name = injection.cell.name
    log = StepLogger(log_dir, run_name=name, synthetic=injection.cell.synthetic)
    begin_together = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    network(injection).fit(
        data(injection),
        steps_per_epoch=steps,
        callbacks=[begin_together, log, AfterBatch(injection.here)],
        verbose=0,
    )


def main() -> None:
    cells, out = Path(sys.argv[1]), Path(sys.argv[2])
    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    launch = Launch(out, *read_cells(cells), hvd.rank())
    launch.train(train, agree=lambda number: broadcast_object(number, 0))


if __name__ == "__main__":
    main()
