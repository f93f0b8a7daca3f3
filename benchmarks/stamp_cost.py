"""What the stamps in a TensorFlow graph cost: two train functions in turns, one of them with stamps.

One process, one thread, no callbacks and no host part: this is what the graph itself does more.
"""

from __future__ import annotations

import json

from figures import Figure, at_most
from paired import difference
from peers import TRAINING, ran

STEPS = 14
PROGRAM = """
import json, random, statistics, sys, time
import horovod.tensorflow.keras as hvd
import tensorflow as tf
from stallscope.collector.recorder.tf_keras.instrument import Instrumentation
from stallscope.collector.recorder.tf_keras.ring import StampRing

LAYERS, WIDTH, BATCH, SKIPPED, WARM_UP = 80, 64, 32, 3, 3
rounds, steps = int(sys.argv[1]), int(sys.argv[2])
hvd.init()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
x = tf.random.stateless_normal((BATCH, WIDTH), (1, 2))
data = tf.data.Dataset.from_tensors((x, tf.zeros(BATCH, tf.int32))).repeat()
kept = []

def trained(stamped):
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = tf.keras.Sequential([tf.keras.Input((WIDTH,)), *layers, tf.keras.layers.Dense(10)])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.001))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    stamps = Instrumentation(StampRing(), several_per_call=False, single_process=True)
    if stamped:
        stamps.install(model)
    function, batches = model.make_train_function(), iter(data)
    kept.append((model, stamps))
    return lambda: function(batches)["loss"].numpy()

arms = {"none": trained(False), "stamps": trained(True)}
step_us = {arm: [] for arm in arms}
order = random.Random(7)
for number in range(WARM_UP + rounds):
    for arm in order.sample(sorted(arms), len(arms)):
        laps = []
        for _ in range(steps):
            begun = time.perf_counter_ns()
            arms[arm]()
            laps.append(time.perf_counter_ns() - begun)
        if number >= WARM_UP:
            step_us[arm].append(statistics.median(laps[SKIPPED:]) / 1e3)
placed = kept[1][1].placed
assert placed == ["data", "ready", "reduced"], placed
print(json.dumps(step_us))
"""


def figures(quick: bool) -> list[Figure]:
    words = ["python", "-c", PROGRAM, str(20 if quick else 200), str(STEPS)]
    printed = ran(words, TRAINING, {"TF_CPP_MIN_LOG_LEVEL": "3"})
    step_us = json.loads(printed.splitlines()[-1])
    by = difference(step_us["stamps"], step_us["none"])
    name = "TensorFlow graph, 162 gradients: stamps per step"
    return [at_most(name, by.value, "µs", 50, interval=by.interval)]
