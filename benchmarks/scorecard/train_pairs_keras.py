"""Train pairs with TF-Keras and Horovod; pairs.py starts it.

horovodrun -np 2 python benchmarks/scorecard/train_pairs_keras.py PLAN OUT
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from horovod.tensorflow import broadcast_object
from pairs_launch import BATCH, CLASSES, LAYERS, WIDTH, Delays, Fault, Pause, Rank, Samples
from pairs_plan import Segment

from stallscope.keras import StepLogger, synthetic_like

#: Called once per step with the current stage.
Here = Callable[[str], None]


def after(here: Here, stage: str, trigger: tf.Tensor, result: tf.Tensor) -> tf.Tensor:
    """Return the result once the trigger is computed and the fault is over."""

    def wait(value: np.ndarray) -> np.ndarray:
        here(stage)
        return value

    with tf.control_dependencies([tf.numpy_function(wait, [trigger], trigger.dtype)]):
        return tf.identity(result)


class Hook(tf.keras.layers.Layer):
    """Pass the input on, delayed by the fault."""

    def __init__(self, here: Here) -> None:
        super().__init__()
        self._here = here

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return after(self._here, "compute", inputs[0, 0], inputs)


class AfterBatch(tf.keras.callbacks.Callback):
    """A callback that takes as long as the fault."""

    _supports_tf_logs = True

    def __init__(self, here: Here) -> None:
        super().__init__()
        self._here = here

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._here("other")


def data(fault: Fault) -> tf.data.Dataset:
    """Yield endless batches, each delayed by the fault; two are prefetched, or none."""
    samples = Samples(hvd.rank())

    def load(_: np.int64) -> tuple[np.ndarray, np.ndarray]:
        batch = samples.batch()
        fault.here("input")
        return batch

    def loaded(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x, y = tf.numpy_function(load, [number], (tf.float32, tf.int64))
        return tf.ensure_shape(x, (BATCH, WIDTH)), tf.ensure_shape(y, (BATCH,))

    batches = tf.data.Dataset.range(1).repeat().map(loaded)
    if fault.prefetched:
        batches = batches.prefetch(2)
    options = tf.data.Options()
    # Otherwise TensorFlow adds prefetching where there is none.
    options.autotune.enabled = False
    return batches.with_options(options)


def network(fault: Delays, depth: int = LAYERS) -> tf.keras.Model:
    """Make the compiled model; ``depth`` counts its hidden layers."""
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(depth)]
    model = tf.keras.Sequential(
        [
            tf.keras.Input((WIDTH,)),
            Hook(fault.here),
            *layers,
            tf.keras.layers.Dense(CLASSES),
        ],
        name="pairs",
    )
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.001))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Turns(tf.keras.callbacks.Callback):
    """Pauses the training after every so many steps; the recorder takes it for validation."""

    _supports_tf_logs = True

    def __init__(self, steps: int, pause: Pause, log: StepLogger) -> None:
        super().__init__()
        self._steps = steps
        self._pause = pause
        self._log = log

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if (batch + 1) % self._steps == 0:
            self._log.on_test_begin()
            self._pause()
            self._log.on_test_end()


def train(
    segment: Segment, fault: Fault, log_dir: Path, turns: int, steps: int, pause: Pause
) -> None:
    """Train one segment from the start, in turns."""
    tf.keras.utils.set_random_seed(1)
    synthetic = segment.role == "baseline"
    begin_together = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    log = StepLogger(log_dir, run_name=segment.name, synthetic=synthetic)
    real = data(fault)
    network(fault).fit(
        synthetic_like(real) if synthetic else real,
        steps_per_epoch=turns * steps,
        callbacks=[begin_together, log, AfterBatch(fault.here), Turns(steps, pause, log)],
        verbose=0,
    )


def one_core_per_rank() -> None:
    """Compute in one thread; a second one is for operations that wait."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)


def main() -> None:
    plan, out = Path(sys.argv[1]), Path(sys.argv[2])
    hvd.init()
    one_core_per_rank()
    agree = partial(broadcast_object, root_rank=0)
    Rank(out, hvd.rank(), hvd.size(), train, agree).run(plan)


if __name__ == "__main__":
    main()
