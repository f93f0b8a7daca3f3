"""Train with the callback and TensorFlow's profiler at once, for late_timestamps.py.

    horovodrun -np 2 python benchmarks/late_timestamps_training.py OUT [--mixed] [--steps N]

The profiler has a span for every op that the executor runs, and an event when it hands on an op's
outputs. A timestamp is late by the time from the last output that it waits for to its own op's span.
Both are on the profiler's clock: no reading of ours is involved.

Writes OUT/logs (step logs) and, per rank, OUT/late-RANK.json: the lateness of every timestamp in
milliseconds, step by step.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from stallscope.keras import StepLogger

LAYERS, UNITS, BATCH = 20, 32, 32
# Tracing, and the first negotiation of every gradient.
SKIPPED = 3
# The scopes of the timestamps, in the order in which they are traced.
SCOPES = {"data": "stallscope", "ready": "stallscope_1", "reduced": "stallscope_2"}
_HANDED_ON = "ExecutorPropagateOutputs"


def network() -> tf.keras.Model:
    hidden = [tf.keras.layers.Dense(UNITS, activation="relu") for _ in range(LAYERS)]
    return tf.keras.Sequential([*hidden, tf.keras.layers.Dense(4, dtype="float32")])


def batches() -> tf.data.Dataset:
    generator = np.random.default_rng(hvd.rank())
    inputs = generator.random((1024, UNITS), np.float32)
    labels = generator.integers(0, 4, 1024)
    return tf.data.Dataset.from_tensor_slices((inputs, labels)).repeat().batch(BATCH).prefetch(2)


class Profiled(tf.keras.callbacks.Callback):
    """Profile the steps between the first ones and the last one."""

    def __init__(self, folder: Path, steps: int) -> None:
        super().__init__()
        self._folder = folder
        self._last = steps - 2

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == SKIPPED:
            options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3)
            tf.profiler.experimental.start(str(self._folder), options)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self._last:
            tf.profiler.experimental.stop()


def gradient_names(optimizer: Any) -> list[str]:
    """Return a list that holds the names of the gradients' ops after the first trace."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    reduce, names = inner._allreduce_grads, []

    def allreduce_grads(gradients: Any, *args: Any, **kwargs: Any) -> Any:
        names[:] = [gradient.op.name for gradient in gradients]
        return reduce(gradients, *args, **kwargs)

    inner._allreduce_grads = allreduce_grads
    return names


def lateness(profile: Path, gradients: list[str]) -> dict[str, list[float]]:
    """Return, per timestamp, the milliseconds by which it was late in every step."""
    handed_on, began = events(profile)
    allreduces = [name for name in handed_on if "HorovodAllreduce" in name]
    waits_for = {"data": ["IteratorGetNext"], "ready": gradients, "reduced": allreduces}
    late = {}
    for stamp, scope in SCOPES.items():
        at = np.sort(began[f"{scope}/Timestamp"])
        last = [latest_before(np.sort(handed_on[name]), at) for name in waits_for[stamp]]
        # The first step may have started before the profiler did.
        late[stamp] = ((at - np.max(last, axis=0))[1:] / 1e9).tolist()
    return late


def events(profile: Path) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return, per op, when its outputs were handed on and when it started, in picoseconds."""
    space = xplane_pb2.XSpace()
    (file,) = profile.rglob("*.xplane.pb")
    space.ParseFromString(file.read_bytes())
    (plane,) = (plane for plane in space.planes if plane.name == "/host:CPU")
    names = {key: metadata.name for key, metadata in plane.stat_metadata.items()}
    handed_on: dict[str, list[int]] = defaultdict(list)
    began: dict[str, list[int]] = defaultdict(list)
    for line in plane.lines:
        for event in line.events:
            at = line.timestamp_ns * 1000 + event.offset_ps
            name = plane.event_metadata[event.metadata_id].name
            if name == _HANDED_ON:
                for stat in event.stats:
                    if names[stat.metadata_id] == "kernel_name":
                        handed_on[stat.str_value or names[stat.ref_value]].append(at)
            else:
                began[name.rpartition(":")[0]].append(at)
    return handed_on, began


def latest_before(moments: Any, at: Any) -> Any:
    """Return the last of some moments before each of others; the first moment if none is before."""
    return moments[np.maximum(np.searchsorted(moments, at) - 1, 0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mixed", action="store_true", help="train with mixed precision")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()

    hvd.init()
    tf.keras.utils.set_random_seed(1)
    if options.mixed:
        tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = network()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01))
    model.compile(optimizer, loss, jit_compile=False)
    gradients = gradient_names(model.optimizer)
    profile = options.out / f"profile-{hvd.rank()}"
    model.fit(
        batches(),
        steps_per_epoch=options.steps,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            StepLogger(options.out / "logs"),
            Profiled(profile, options.steps),
        ],
        verbose=0,
    )
    late = lateness(profile, gradients)
    (options.out / f"late-{hvd.rank()}.json").write_text(json.dumps(late))


if __name__ == "__main__":
    main()
