"""Measures how late the timestamps in TensorFlow's graph are taken, with TensorFlow's profiler.

    python benchmarks/late_timestamps.py --out TABLE.md [--steps N] [--keep FOLDER]

Two real Horovod ranks train with the callback and the profiler on (late_timestamps_training.py), with
nothing else and with a busy process per core, in single and in mixed precision. Writes per timestamp
how long after the last tensor that it waits for it was taken, and how many steps break causality.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from stallscope.analysis import analyse
from stallscope.parsers import read

ROOT = Path(__file__).parents[1]
TRAINING = ROOT / ".venv-horovod"
PROGRAM = ROOT / "benchmarks" / "late_timestamps_training.py"
#: What the training is given, and busy processes per core.
CONDITIONS = {
    "nothing else": ([], 0),
    "a busy process per core": ([], 1),
    "mixed precision": (["--mixed"], 0),
    "mixed precision, a busy process per core": (["--mixed"], 1),
}
STAMPS = ("data", "ready", "reduced")
_LATE_MS = 0.5


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep as many cores busy, with this process's own priority."""
    running = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def train(folder: Path, options: list[str]) -> None:
    """Train on two real Horovod ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    done = subprocess.run(
        [
            *("horovodrun", "--disable-cache", "-np", "2", "--start-timeout", "300"),
            *("python", str(PROGRAM), str(folder), *options),
        ],
        env=kept
        | {"PATH": f"{TRAINING / 'bin'}:{os.environ['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"the training failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def rows(condition: str, folder: Path) -> Iterator[str]:
    """One row of the table per timestamp."""
    of_ranks = [json.loads((folder / f"late-{rank}.json").read_text()) for rank in (0, 1)]
    for stamp in STAMPS:
        late = np.concatenate([found[stamp] for found in of_ranks])
        p50, p99 = np.percentile(late, (50, 99))
        yield (
            f"| {condition} | {stamp} | {len(late)} | {p50:.3f} | {p99:.2f} | {late.max():.2f} "
            f"| {np.mean(late > _LATE_MS):.1%} |"
        )


def sentence(condition: str, folder: Path) -> str:
    """How often causality shows that a timestamp came late."""
    (run,) = read(str(folder / "logs"))
    found = analyse(run)
    assert found.clocks is not None
    return (
        f"- {condition}: causality shows it in {found.clocks.late:.1%} of {found.steps} steps, "
        f"{found.clocks.late_ms:.3f} ms per step."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="where the table goes, as Markdown")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--keep", type=Path, help="a folder for logs and profiles")
    options = parser.parse_args()
    table = [
        f"| beside it | timestamp | steps × ranks | p50, ms | p99, ms | max, ms | > {_LATE_MS} ms |",
        "| --- | --- |" + " ---: |" * 5,
    ]
    said = []
    with tempfile.TemporaryDirectory() as temporary:
        for number, (condition, (words, per_core)) in enumerate(CONDITIONS.items()):
            folder = (options.keep or Path(temporary)) / str(number)
            with busy(per_core * (os.cpu_count() or 1)):
                train(folder, [*words, "--steps", str(options.steps)])
            table += rows(condition, folder)
            said.append(sentence(condition, folder))
            print("\n".join((*table, "", *said)), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join((*table, "", *said, "")))


if __name__ == "__main__":
    main()
