"""Train with the callback and the Horovod Timeline at once, for witness.py to compare them.

    horovodrun -np 2 python benchmarks/witness_training.py OUT [--fault FAULT] [--mark-cycles]

The network, its data and the faults are those of the sample runs (tools/samples/train.py). Before
and after training every rank reduces one number a few times by hand. Each of these probes must lie,
in the timeline, between the two readings of rank 0's monotonic clock around it. That ties the
timeline's clock to ours without trusting either anchor.

Writes OUT/logs (step logs), OUT/timeline.json (rank 0 only; the others write none) and
OUT/probes.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tools" / "samples"))

import horovod.tensorflow.keras as hvd
import tensorflow as tf
from train import FAULTS as SLEEPS_MS
from train import images, network

from stallscope.keras import StepLogger

FAULTS = ("none", "slow-compute-rank", "slow-input-one-rank")
PROBE = "witness_probe"
PROBES = 50


def probes() -> list[tuple[int, int]]:
    """Return monotonic nanoseconds before and after each of some allreduces of one number."""
    number = tf.constant(0.0)
    readings = []
    for _ in range(PROBES):
        before = time.monotonic_ns()
        hvd.allreduce(number, name=PROBE)
        readings.append((before, time.monotonic_ns()))
    return readings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--mark-cycles", action="store_true")
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()

    # Horovod reads both at its start, on every rank; only rank 0 writes.
    os.environ["HOROVOD_TIMELINE"] = str(options.out / "timeline.json")
    os.environ["HOROVOD_TIMELINE_MARK_CYCLES"] = str(int(options.mark_cycles))
    hvd.init()
    # As in the sample runs: one core for each rank, if there are enough.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.keras.utils.set_random_seed(1)

    seconds = SLEEPS_MS[options.fault] / 1000 if hvd.rank() == 1 else 0.0
    data = images(seconds if options.fault == "slow-input-one-rank" else 0.0)
    model = network(seconds if options.fault == "slow-compute-rank" else 0.0)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01 * hvd.size()))
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    readings = probes()
    model.fit(
        data,
        steps_per_epoch=options.steps,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            StepLogger(options.out / "logs", run_name=options.fault),
        ],
        verbose=0,
    )
    readings += probes()
    if hvd.rank() == 0:
        (options.out / "probes.json").write_text(json.dumps(readings))
    # Horovod's shutdown loses what the Timeline's writer has not written.
    time.sleep(1.0)


if __name__ == "__main__":
    main()
