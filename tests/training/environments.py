"""Where other frameworks than Horovod's two are trained with, and what is said where they are not."""

from __future__ import annotations

from pathlib import Path

from support.needing import need

ROOT = Path(__file__).parents[2]
#: Keras 3 on TensorFlow, torch and JAX, Lightning, transformers and Accelerate.
KERAS3 = ROOT / ".venv-keras3"
#: MXNet and Horovod, on Python 3.8.
MXNET = ROOT / ".venv-mxnet"
#: DeepSpeed on CPUs, with the torch of KERAS3.
DEEPSPEED = ROOT / ".venv-deepspeed"
#: Ray Train, with the torch of KERAS3.
RAY = ROOT / ".venv-ray"


def needs(environment: Path, how: str) -> None:
    """Skips the test where an environment is not there."""
    there = (environment / ".ready").exists()
    need(there, f"there is no {environment.name} to train in: {how}")
