"""Where other frameworks than Horovod's two are trained with, and what is said where they are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Keras 3 on TensorFlow, torch and JAX, and Lightning.
KERAS3 = ROOT / ".venv-keras3"
#: MXNet and Horovod, on Python 3.8.
MXNET = ROOT / ".venv-mxnet"


def needs(environment: Path, how: str) -> None:
    """Skips the test where an environment is not there."""
    if (environment / ".ready").exists():
        return
    reason = f"there is no {environment.name} to train in: {how}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
