"""Runs the benchmarks and prints one table; ``make bench`` calls it.

python benchmarks/run.py [--rounds N] [--steps N]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from scipy import stats

ROOT = Path(__file__).parents[1]
TRAINING = ROOT / ".venv-horovod"


def overhead(rounds: int, steps: int) -> dict:
    """The result of keras_overhead.py on two real Horovod ranks."""
    with tempfile.TemporaryDirectory() as out:
        environment = os.environ | {
            "PATH": f"{TRAINING / 'bin'}:{os.environ['PATH']}",
            "HOROVOD_TIMELINE": "DYNAMIC",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        program = [str(ROOT / "benchmarks" / "keras_overhead.py"), out, str(rounds), str(steps)]
        done = subprocess.run(
            ["horovodrun", "--disable-cache", "-np", "2", "python", *program],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        result = Path(out) / "result.json"
        if done.returncode or not result.exists():
            sys.exit(
                f"the benchmark's training failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return json.loads(result.read_text())


def added(arm: list[float], none: list[float]) -> tuple[float, float]:
    """Milliseconds that an arm adds per step, and half of the 95 % interval, over paired rounds."""
    differences = [a - b for a, b in zip(arm, none, strict=True)]
    half = stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
    return statistics.mean(differences), float(half)


def table(result: dict) -> Table:
    step_ms, sizes = result["step_ms"], result["bytes_per_step"]
    none = step_ms["none"]
    base = statistics.mean(none)
    rows = Table(
        title=(
            f"Added time per step: {result['ranks']} ranks, {result['gradients']} gradients, "
            f"{len(none)} rounds of {result['steps']} steps, step without anything {base:.2f} ms"
        ),
        caption=(
            "lower quartile of step times, mean of paired differences against no callback with its "
            "95 % interval; bytes per recording rank, headers included"
        ),
    )
    for name in ("", "added ms/step", "added", "bytes/step"):
        rows.add_column(name, justify="left" if not name else "right")
    titles = {"callback": "StepLogger", "timeline": "Horovod Timeline"}
    for arm, title in titles.items():
        mean, half = added(step_ms[arm], none)
        rows.add_row(
            title,
            f"{mean:+.2f} ± {half:.2f}",
            f"{mean / base:+.1%} ± {half / base:.1%}",
            f"{sizes[arm]:,.0f}",
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    console = Console(width=100)
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    console.print(table(overhead(options.rounds, options.steps)))


if __name__ == "__main__":
    main()
