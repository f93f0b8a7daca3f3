"""Start the trainings of gpu_check.py with this Python, and read their results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from stallscope.parsers import read
from stallscope.run import Run

_BENCHMARKS = Path(__file__).parents[1]
_PATIENCE_SECONDS = 150
# torchrun waits 30 seconds for its ranks.
_ENDING_SECONDS = 45
_LAST_LINES = 3
_RANKS = "2"


class TrainingError(Exception):
    """A training failed; the message has its last lines."""


class Check(NamedTuple):
    """One line of the report; ``passed`` is None if nothing could be checked."""

    what: str
    expected: str
    seen: str
    passed: bool | None


def alone() -> list[str]:
    """Return the command line that starts a module in one process."""
    return [sys.executable, "-m"]


def under_torchrun() -> list[str]:
    """Return the command line that starts a module as two ranks of torchrun, which may share a GPU."""
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", _RANKS]
    return [*alone(), *torchrun, "-m", "gpu.one_gpu_rank"]


def under_horovodrun() -> list[str]:
    """Return the command line that starts a module as two ranks of Horovod, which may share a GPU."""
    return [
        *alone(),
        "horovod.runner.launch",
        "--gloo",
        "-np",
        _RANKS,
        *alone(),
        "gpu.one_gpu_rank",
    ]


def start(out: Path, module: str, *words: str, launcher: list[str] | None = None) -> None:
    """Run a module of benchmarks/, or one that is installed, and keep what it prints in ``out``.

    Args:
        launcher: starts it; otherwise it is one process.

    Raises:
        TrainingError: if it fails or takes too long.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(_BENCHMARKS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [*(launcher or alone()), module, *words]
    env = {**os.environ, "PYTHONPATH": path}
    with (out / "printed.txt").open("w") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, env=env)
    try:
        status = process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired as error:
        _end(process)
        raise TrainingError(f"took longer than {_PATIENCE_SECONDS} s") from error
    if status:
        raise TrainingError(last_lines(out / "printed.txt"))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launcher with its ranks: it passes on the first signal, not the second."""
    process.terminate()
    try:
        process.wait(_ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def train(out: Path, case: str, device: str, steps: int, launcher: list[str] | None = None) -> None:
    """Train one case of train.py."""
    start(out, "gpu.train", str(out), case, device, str(steps), launcher=launcher)


def last_lines(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-_LAST_LINES:])


def run_of(out: Path) -> Run:
    """Return the run that a training has recorded."""
    (run,) = read(str(out / "logs"))
    return run


def truth_of(out: Path, rank: int = 0) -> dict[str, Any]:
    """Return the times that the training itself has measured."""
    truth: dict[str, Any] = json.loads((out / f"truth-{rank}.json").read_text())
    return truth


def recorded(run: Run, column: str, rank: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return one rank's timestamps in monotonic nanoseconds by step, NaN where they are missing."""
    rows = run.steps.filter(pc.equal(run.steps["rank"], rank)).sort_by("step")
    return rows[column].to_numpy(zero_copy_only=False).astype(np.float64)
