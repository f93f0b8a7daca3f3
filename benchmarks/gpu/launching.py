"""Start the trainings of gpu_check.py with this Python, and read their results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from stallscope.parsers import read
from stallscope.run import Run

HERE = Path(__file__).parent
_PATIENCE_SECONDS = 150
_LAST_LINES = 3


class TrainingError(Exception):
    """A training failed; the message has its last lines."""


class Check(NamedTuple):
    """One line of the report; ``passed`` is None if nothing could be checked."""

    what: str
    expected: str
    seen: str
    passed: bool | None


def start(
    out: Path, program: str, *words: str, ranks: int = 0, under: tuple[str, ...] = ()
) -> None:
    """Run a program of this folder with its output in ``out``; with ranks under torchrun.

    Args:
        under: the start of another command line to run instead of the program.

    Raises:
        TrainingError: if it fails or takes too long.
    """
    out.mkdir(parents=True, exist_ok=True)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*under, *words] if under else [str(HERE / program), str(out), *words]
    with (out / "printed.txt").open("w") as printed:
        try:
            done = subprocess.run(
                [sys.executable, *(torchrun if ranks else []), *command],
                stdout=printed,
                stderr=subprocess.STDOUT,
                timeout=_PATIENCE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TrainingError(f"took longer than {_PATIENCE_SECONDS} s") from error
    if done.returncode:
        raise TrainingError(last_lines(out / "printed.txt"))


def last_lines(path: Path) -> str:
    lines = [one.strip() for one in path.read_text(errors="replace").splitlines() if one.strip()]
    return " / ".join(lines[-_LAST_LINES:])


def run_of(out: Path) -> Run:
    """Return the run that a training has recorded."""
    (run,) = read(str(out / "logs"))
    return run


def truth_of(out: Path, rank: int = 0) -> dict[str, Any]:
    """Return the times that the training itself has measured."""
    found: dict[str, Any] = json.loads((out / f"truth-{rank}.json").read_text())
    return found


def recorded(run: Run, column: str, rank: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return one rank's timestamps in monotonic nanoseconds by step, NaN where they are missing."""
    rows = run.steps.filter(pc.equal(run.steps["rank"], rank)).sort_by("step")
    return rows[column].to_numpy(zero_copy_only=False).astype(np.float64)
