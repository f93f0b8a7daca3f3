"""Train many small models with Keras 2, one per case, each with its own log folder.

    horovodrun -np 2 python keras_cases.py OUT [CASE …]     cases of two ranks
    python keras_cases.py OUT [CASE …]                      cases of one process without Horovod

TensorFlow starts slowly, so one launch runs all cases. ``OUT/CASE/logs`` holds the logs; for results and
errors see ``run_cases``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import tensorflow as tf
from case_runner import run_cases
from keras2.base import ALONE, RANKED, RANKS, Case

#: In this order; after the last one Horovod stays initialised.
MODULES = (
    "data",
    "training",
    "several_fits",
    "models",
    "callbacks",
    "synthetic",
    "faults",
    "own_loop",
    "advice",
    "one_process",
)


def fresh_case(folder: Path) -> Case:
    """Return a case without the models and policies of the one before."""
    tf.keras.backend.clear_session()
    tf.keras.mixed_precision.set_global_policy("float32")
    return Case(folder)


def main() -> None:
    out, *names = sys.argv[1:]
    rank = 0
    if RANKED:
        import horovod.tensorflow.keras as hvd

        hvd.init()
        rank = hvd.rank()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    for module in MODULES:
        importlib.import_module(f"keras2.{module}")
    run_cases(RANKS if RANKED else ALONE, Path(out), names, rank, fresh_case)


if __name__ == "__main__":
    main()
