"""Train a network of Keras on Horovod, with and without the recorder in turns, for keras_overhead.py.

    horovodrun -np 2 python benchmarks/keras_overhead_training.py OUT LAYERS WIDTH STAMPED STEPS SEED

Two train functions of one model, one of them with the recorder, alternate step by step, in the same
random order on all ranks. Two equal graphs differ in speed because their memory lies elsewhere, by more
than the timestamps take. So the graph has the timestamps STAMPED times: their cost grows accordingly,
and the difference between the graphs does not.

Writes OUT/result.json on rank 0, the time and the arm of every step; and OUT/logs.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import horovod.tensorflow.keras as hvd
import tensorflow as tf

from stallscope.collector.recorder.tf_keras.instrument import Instrumentation
from stallscope.collector.recorder.tf_keras.timestamp_ring import TimestampRing
from stallscope.keras import StepLogger

BATCH = 32
ARMS = ("none", "recorder")

Step = Callable[[Iterator[Any]], dict[str, tf.Tensor]]


def network(layers: int, width: int) -> tf.keras.Model:
    hidden = [tf.keras.layers.Dense(width, activation="relu") for _ in range(layers)]
    model = tf.keras.Sequential([tf.keras.Input((width,)), *hidden, tf.keras.layers.Dense(10)])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.001))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def plain(model: tf.keras.Model, batches: Iterator[Any]) -> Step:
    function = model.make_train_function(force=True)
    function(batches)
    return function


def recorded(
    model: tf.keras.Model, batches: Iterator[Any], logger: StepLogger, stamped: int
) -> Step:
    """Make the train function with the recorder, and with timestamps of more recorders in its graph."""
    # Their buffers are small, as their values are not used.
    more = [Instrumentation(TimestampRing(64), False, False) for _ in range(stamped - 1)]
    for instrumentation in more:
        instrumentation.install(model)
        # Its timestamps are read like the recorder's.
        instrumentation.takes_out = lambda: True
    logger.set_model(model)
    logger.on_train_begin()
    logger.on_epoch_begin(0)
    model.train_function(batches)
    for instrumentation in more:
        instrumentation.remove()
        assert instrumentation.placed == ["data", "ready", "reduced"], instrumentation.placed
    return model.train_function


def main() -> None:
    out = Path(sys.argv[1])
    layers, width, stamped, steps, seed = map(int, sys.argv[2:])
    hvd.init()
    if hvd.size() == 1:
        # A single rank reduces nothing unless the size is above 1; Horovod's threads know the true size.
        hvd.global_process_set.size = lambda: 2
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    order = random.Random(seed)
    x = tf.random.stateless_normal((BATCH, width), (1, 2))
    batches = iter(tf.data.Dataset.from_tensors((x, tf.zeros(BATCH, tf.int32))).repeat())
    model, logger = network(layers, width), StepLogger(out / "logs")
    functions: dict[str, Step] = {}
    for arm in order.sample(ARMS, len(ARMS)):
        if arm == "recorder":
            functions[arm] = recorded(model, batches, logger, stamped)
        else:
            functions[arm] = plain(model, batches)
    # Traced code runs once: in the first two steps.
    ran = [{"arm": arm, "us": None, "cpu_us": None} for arm in functions]
    for _ in range(steps):
        for arm in order.sample(ARMS, len(ARMS)):
            begun, worked = time.perf_counter_ns(), time.process_time_ns()
            functions[arm](batches)["loss"].numpy()
            us = (time.perf_counter_ns() - begun) / 1e3
            # CPU time of all threads of the process.
            ran.append({"arm": arm, "us": us, "cpu_us": (time.process_time_ns() - worked) / 1e3})
    logger.on_train_end()
    if hvd.rank() == 0:
        result = {"gradients": 2 * (layers + 1), "steps": ran}
        (out / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
