"""Measure how late the timestamps in TensorFlow's graph are taken, with TensorFlow's profiler.

    python benchmarks/late_timestamps.py --out TABLE.md [--steps N] [--keep FOLDER]

Two real Horovod ranks train with the callback and the profiler (late_timestamps_training.py), on
idle cores and with one busy process per core, in single and in mixed precision. Writes how long each
timestamp was taken after its last input tensor, and in how many steps causality shows that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from peers import ROOT
from two_ranks import arguments, folder_for, train, write

from stallscope.analysis import analyse
from stallscope.parsers import read

PROGRAM = ROOT / "benchmarks" / "late_timestamps_training.py"
#: The training's arguments, and busy processes per core.
CONDITIONS = {
    "none": ([], 0),
    "a busy process per core": ([], 1),
    "mixed precision": (["--mixed"], 0),
    "mixed precision, a busy process per core": (["--mixed"], 1),
}
TIMESTAMPS = ("data", "ready", "reduced")
_LATE_MS = 0.5


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many cores busy, at this process's priority."""
    running = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def rows(condition: str, folder: Path) -> Iterator[str]:
    """Return one row of the table per timestamp."""
    of_ranks = [json.loads((folder / f"late-{rank}.json").read_text()) for rank in (0, 1)]
    for stamp in TIMESTAMPS:
        late = np.concatenate([times[stamp] for times in of_ranks])
        p50, p99 = np.percentile(late, (50, 99))
        yield (
            f"| {condition} | {stamp} | {len(late)} | {p50:.3f} | {p99:.2f} | {late.max():.2f} "
            f"| {np.mean(late > _LATE_MS):.1%} |"
        )


def sentence(condition: str, folder: Path) -> str:
    """Return how often causality shows that a timestamp was late, as a sentence."""
    (run,) = read(str(folder / "logs"))
    analysis = analyse(run)
    assert analysis.clocks is not None
    return (
        f"- {condition}: causality shows late timestamps in {analysis.clocks.late:.1%} of "
        f"{analysis.steps} steps, {analysis.clocks.late_ms:.3f} ms per step."
    )


def main() -> None:
    options = arguments(__doc__, steps=300)
    table = [
        f"| other load | timestamp | steps × ranks | p50, ms | p99, ms | max, ms | > {_LATE_MS} ms |",
        "| --- | --- |" + " ---: |" * 5,
    ]
    sentences = []
    with folder_for(options.keep) as kept:
        for number, (condition, (words, per_core)) in enumerate(CONDITIONS.items()):
            folder = kept / str(number)
            with busy(per_core * (os.cpu_count() or 1)):
                train(PROGRAM, folder, [*words, "--steps", str(options.steps)])
            table += rows(condition, folder)
            sentences.append(sentence(condition, folder))
            print("\n".join((*table, "", *sentences)), flush=True)
    write(options.out, "\n".join((*table, "", *sentences, "")))


if __name__ == "__main__":
    main()
