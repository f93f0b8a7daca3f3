"""What recording costs a step of Keras, told to some microseconds: one small model with nothing, with
the stamps in its graph, and with the whole recorder, step by step in turns.

One process, one thread, and Keras' train function called as ``fit`` calls it: what else ``fit`` does
between steps, and what other ranks do, is noise here. Two graphs that do the same differ by tens of
microseconds for good, by where their memory lies: so all is made anew many times, in another order.
"""

from __future__ import annotations

import json
from tempfile import TemporaryDirectory

from figures import Figure, at_most
from paired import difference
from peers import TRAINING, ran

#: A network, whose size ``LAYERS`` and ``WIDTH`` say, and its train function, traced anew.
NETWORK = """
import json, os, random, statistics, sys, time
import horovod.tensorflow.keras as hvd
import tensorflow as tf
from stallscope.collector.recorder.tf_keras.instrument import Instrumentation
from stallscope.collector.recorder.tf_keras.ring import StampRing
from stallscope.keras import StepLogger

BATCH = 32
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
"""

PROGRAM = (
    f"LAYERS, WIDTH = 10, 64\n{NETWORK}"
    """
STEPS, WARM_UP = 150, 20
times, logs = int(sys.argv[1]), sys.argv[2]

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
            begun = time.perf_counter_ns()
            functions[arm](batches)["loss"].numpy()
            laps[arm].append(time.perf_counter_ns() - begun)
    logger.on_train_end()
    return {arm: statistics.median(own[WARM_UP:]) / 1e3 for arm, own in laps.items()}

print(json.dumps([medians() for _ in range(times)]))
"""
)


def figures(quick: bool) -> list[Figure]:
    with TemporaryDirectory() as logs:
        words = ["python", "-c", PROGRAM, str(4 if quick else 40), logs]
        printed = ran(words, TRAINING, {"TF_CPP_MIN_LOG_LEVEL": "3"})
    rounds = json.loads(printed.splitlines()[-1])
    step_us = {arm: [one[arm] for one in rounds] for arm in rounds[0]}
    found = []
    for arm, what in (("stamps", "the stamps in the graph add"), ("recorder", "the recorder adds")):
        by = difference(step_us[arm], step_us["nothing"])
        name = f"Keras, 22 gradients, step by step: {what}"
        found.append(at_most(name, by.value, "µs", 50, interval=by.interval))
    return found
