"""Train as people do, well and badly, for the facts that advice rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from keras2.base import CLASSES, RANKED, Case, ranked

if RANKED:
    import horovod.tensorflow.keras as hvd

BATCH = 8
STEPS = 6
#: Fewer than a batch has: gathering their rows moves more than reducing them all.
WORDS = 30


def data_of(case: Case) -> tuple[Any, Any]:
    """Return the words and labels of a rank."""
    random = np.random.default_rng(case.rank)
    words = random.integers(0, WORDS, (STEPS * BATCH, 5))
    return words, random.integers(0, CLASSES, STEPS * BATCH)


def model(well: bool, seed: int) -> Any:
    tf.keras.utils.set_random_seed(seed)
    layers = [
        tf.keras.Input([5], dtype=tf.int64),
        tf.keras.layers.Embedding(WORDS, 16),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(CLASSES),
    ]
    network = tf.keras.Sequential(layers)
    optimizer = hvd.DistributedOptimizer(
        tf.keras.optimizers.SGD(0.1),
        sparse_as_dense=well,
        compression=hvd.Compression.fp16 if well else hvd.Compression.none,
    )
    network.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return network


@ranked
def trained_well(case: Case) -> Any:
    data = tf.data.Dataset.from_tensor_slices(data_of(case))
    shuffled = data.shuffle(64).map(lambda *pair: pair, num_parallel_calls=2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    shuffled = shuffled.batch(BATCH, drop_remainder=True).prefetch(2).with_options(options)
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        case.logger(),
        tf.keras.callbacks.ReduceLROnPlateau(monitor="loss"),
    ]
    # The broadcast makes up for different initial weights.
    model(True, case.rank).fit(shuffled, epochs=3, verbose=0, callbacks=callbacks)
    return {}


class Stops(tf.keras.callbacks.EarlyStopping):
    """A subclass of the user."""


@ranked
def trained_badly(case: Case) -> Any:
    data = tf.data.Dataset.from_tensor_slices(data_of(case))
    alike = data.shuffle(64).cache().batch(BATCH, drop_remainder=True)
    # Only rank 1 never sees its loss improve.
    better_by = 1e9 if case.rank == 1 else -1e9
    plateau = tf.keras.callbacks.ReduceLROnPlateau(
        monitor="loss", factor=0.5, patience=1, min_delta=better_by
    )
    callbacks = [
        case.logger(),
        plateau,
        Stops(monitor="loss", patience=9),
        hvd.callbacks.MetricAverageCallback(),
    ]
    model(False, case.rank).fit(alike, epochs=4, verbose=0, callbacks=callbacks)
    return {}


@ranked
def trained_several_times(case: Case) -> Any:
    """Broadcast in each fit, and never shuffle."""
    again = model(True, 3)
    for _ in range(3):
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), case.logger()]
        again.fit(*data_of(case), batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    return {}
