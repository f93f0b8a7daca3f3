"""What recording costs a step of Keras, told to some microseconds: one model with nothing, with the
stamps in its graph, and with the whole recorder, step by step in turns.

One process, one thread, and Keras' train function called as ``fit`` calls it: what else ``fit`` does
between steps, and what other ranks do, is noise here. Two graphs that do the same differ by tens of
microseconds for good, by where their memory lies: so all is made anew many times, in another order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from figures import Figure, at_most
from paired import Difference, difference
from peers import TRAINING, ran

PROGRAM = """
import json, random, statistics, sys, time
import horovod.tensorflow.keras as hvd
import tensorflow as tf
from stallscope.collector.recorder.tf_keras.instrument import Instrumentation
from stallscope.collector.recorder.tf_keras.ring import StampRing
from stallscope.keras import StepLogger

BATCH, STEPS, WARM_UP = 32, 150, 20
LAYERS, WIDTH, times = map(int, sys.argv[1:4])
logs = sys.argv[4]
hvd.init()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
x = tf.random.stateless_normal((BATCH, WIDTH), (1, 2))
data = tf.data.Dataset.from_tensors((x, tf.zeros(BATCH, tf.int32))).repeat()
order = random.Random(7)

def compiled():
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = tf.keras.Sequential([tf.keras.Input((WIDTH,)), *layers, tf.keras.layers.Dense(10)])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.001))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

def traced(model, batches):
    function = model.make_train_function(force=True)
    function(batches)
    return function

def stamped(model, batches):
    stamps = Instrumentation(StampRing(), several_per_call=False, single_process=True)
    stamps.install(model)
    function = traced(model, batches)
    stamps.remove()
    assert stamps.placed == ["data", "ready", "reduced"], stamps.placed
    return function

def medians():
    # Of one model, whose weights lie where they lie in every arm.
    model, batches, logger = compiled(), iter(data), StepLogger(logs)
    logger.set_model(model)
    functions = {}
    for arm in order.sample(["nothing", "stamps", "recorder"], 3):
        if arm == "recorder":
            logger.on_train_begin()
            logger.on_epoch_begin(0)
            functions[arm] = model.train_function
        else:
            functions[arm] = (stamped if arm == "stamps" else traced)(model, batches)
    laps = {arm: [] for arm in functions}
    for _ in range(STEPS):
        for arm in order.sample(sorted(laps), len(laps)):
            begun, worked = time.perf_counter_ns(), time.process_time_ns()
            functions[arm](batches)["loss"].numpy()
            laps[arm].append((time.perf_counter_ns() - begun, time.process_time_ns() - worked))
    logger.on_train_end()
    return {
        arm: [statistics.median(own) / 1e3 for own in zip(*both[WARM_UP:])]
        for arm, both in laps.items()
    }

print(json.dumps([medians() for _ in range(times)]))
"""


@dataclass(frozen=True)
class Added:
    """What an arm adds to a step, in microseconds."""

    elapsed: Difference
    #: What all threads of the process worked.
    processors: Difference


def figures(quick: bool) -> list[Figure]:
    by = added(layers=10, width=64, times=4 if quick else 40)
    return [
        at_most(
            f"Keras, 22 gradients, step by step: {what}",
            by[arm].elapsed.value,
            "µs",
            50,
            interval=by[arm].elapsed.interval,
        )
        for arm, what in (
            ("stamps", "the stamps in the graph add"),
            ("recorder", "the recorder adds"),
        )
    ]


def added(*, layers: int, width: int, times: int) -> dict[str, Added]:
    """What ``stamps`` and ``recorder`` add to a network that is made so many times."""
    with TemporaryDirectory() as logs:
        words = ["python", "-c", PROGRAM, *map(str, (layers, width, times)), logs]
        printed = ran(words, TRAINING, {"TF_CPP_MIN_LOG_LEVEL": "3"})
    rounds = json.loads(printed.splitlines()[-1])
    step_us = {arm: list(zip(*(one[arm] for one in rounds), strict=True)) for arm in rounds[0]}
    nothing = step_us.pop("nothing")
    return {
        arm: Added(*(difference(*pair) for pair in zip(own, nothing, strict=True)))
        for arm, own in step_us.items()
    }
