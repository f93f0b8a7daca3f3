"""Variables and interpreters for the processes that tests of the recorder start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_OUTER_TRAINING = ("HOROVOD_", "STALLSCOPE_", "SLURM_", "MASTER_")


def leave_outer_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of an outer training from this process."""
    for name in list(os.environ):
        if name.startswith(_OUTER_TRAINING):
            monkeypatch.delenv(name)


def settings() -> dict[str, str]:
    """Return the variables of this process, without those of an outer training."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(_OUTER_TRAINING)
    }


def interpreter(version: str) -> str | None:
    """Return a working Python of that version, from PATH or pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = shutil.which(f"python{version}")
    candidates = [
        *([on_path] if on_path else []),
        *map(str, pyenv.glob(f"versions/{version}.*/bin/python")),
    ]
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        candidates.insert(0, sys.executable)
    for candidate in candidates:
        # pyenv's shims on PATH fail if their version is not installed.
        if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None
