"""Run programs in the environments of trainings and of the tools that benchmarks compare with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: TensorFlow, PyTorch and Horovod; ``make training-env`` makes it.
TRAINING = ROOT / ".venv-horovod"
#: traceml-ai and HolisticTraceAnalysis; ``make bench`` makes it.
PEERS = ROOT / ".venv-bench"


class PeerError(Exception):
    """A program of a benchmark failed, or its environment is missing."""


def output_of(
    words: list[str],
    environment: Path | None = None,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> str:
    """Run a program and return its output.

    The environment's programs come first on PATH; the user's settings of Horovod do not apply.

    Raises:
        PeerError: if it failed, with its last lines, or if the environment is missing.
    """
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")
    }
    path = os.environ["PATH"]
    if environment is not None:
        if not (environment / ".ready").exists():
            raise PeerError(f"{environment.name} is missing: make bench makes it")
        path = f"{environment / 'bin'}:{path}"
    done = subprocess.run(
        words,
        env={**inherited, "PATH": path, **(variables or {})},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stdout[-1500:] + done.stderr[-1500:]).strip()
        raise PeerError(f"{' '.join(words).strip()[:60]} … failed:\n{last}")
    return done.stdout
