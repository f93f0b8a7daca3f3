"""Train a small sample network with an autotuner that tries few settings: FOLDER STEPS.

A round has five or six steps here, and the autotuner settles after 4 + 1 rounds.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

TRAIN = Path(__file__).parents[2] / "tools" / "samples" / "train.py"


def main() -> None:
    folder, steps = sys.argv[1:]
    # It is set by startup/, and the tuner tries no other values of what is set.
    os.unsetenv("HOROVOD_CYCLE_TIME")
    os.environ.update(
        HOROVOD_AUTOTUNE="1",
        HOROVOD_AUTOTUNE_LOG=f"{folder}/autotune.csv",
        HOROVOD_AUTOTUNE_WARMUP_SAMPLES="1",
        HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE="1",
        HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES="3",
        # These two are not tuned.
        HOROVOD_HIERARCHICAL_ALLGATHER="0",
        HOROVOD_CACHE_CAPACITY="1024",
    )
    sys.argv = [str(TRAIN), folder, "--epochs", "1", "--steps-per-epoch", steps, "--filters", "6"]
    runpy.run_path(str(TRAIN), run_name="__main__")


if __name__ == "__main__":
    main()
