"""Train the sample network once with each fault: horovodrun -np 2 python faulty.py OUT.

TensorFlow starts slowly, so one launch trains with all faults. ``OUT/FAULT`` holds the logs of a fault.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tools" / "samples"))

import tensorflow as tf
import train

#: Several times a step without a fault: on a busy machine, two ranks delay each other by a step, which
#: would then be the bottleneck.
FAULT_MS = "75"
EPOCHS, STEPS_PER_EPOCH = 2, 40
#: A few milliseconds per step.
FILTERS = "6"
#: More options, by fault.
FAULTS = {
    "slow-input-one-rank": (),
    "slow-compute-rank": (),
    "busy-rank-0": (),
    # As with real batches, which take different times. If all slept alike, one rank's queue could stay a
    # batch ahead for the whole run, and no log would show that its loader is slow.
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
