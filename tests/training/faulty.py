"""Trains the sample network once with each fault: horovodrun -np 2 python faulty.py OUT.

TensorFlow takes long to start, so one launch serves all faults. ``OUT/FAULT`` holds the logs of a fault.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools" / "samples"))

import tensorflow as tf
import train

#: Several times the step without it: on a busy machine, the CPU time that two ranks take from each other
#: is as long as a step, and would rightly be what holds the run back.
FAULT_MS = "75"
EPOCHS, STEPS_PER_EPOCH = 2, 40
#: A few milliseconds per step.
FILTERS = "6"
#: By fault, the options that go with it.
FAULTS = {
    "slow-input-one-rank": (),
    "slow-compute-rank": (),
    "busy-rank-0": (),
    # Real batches take different times. With sleeps of one length, one rank's queue may stay a batch
    # ahead for the whole run, and then no log shows that its loader is as slow as the other's.
    "slow-input-all-ranks": ("--loader-spread", "0.5", "--prefetch", "1"),
}


def main() -> None:
    out = sys.argv[1]
    for fault, options in FAULTS.items():
        tf.keras.backend.clear_session()
        words = [f"{out}/{fault}", "--epochs", str(EPOCHS)]
        words += ["--steps-per-epoch", str(STEPS_PER_EPOCH), "--filters", FILTERS]
        train.main([*words, "--fault", fault, "--fault-ms", FAULT_MS, *options])


if __name__ == "__main__":
    main()
