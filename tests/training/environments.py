"""The environments of other frameworks, and what a test needs of them."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from support.needing import need
from training.launching import ENVIRONMENT

ROOT = Path(__file__).parents[2]
#: Keras 3 on TensorFlow, torch and JAX, Lightning, transformers and Accelerate.
KERAS3 = ROOT / ".venv-keras3"
#: MXNet and Horovod, on Python 3.8.
MXNET = ROOT / ".venv-mxnet"
#: DeepSpeed and Megatron-Core on CPUs.
DEEPSPEED = ROOT / ".venv-deepspeed"
#: Ray Train, with Lightning and transformers.
RAY = ROOT / ".venv-ray"
_HOW = {
    ENVIRONMENT: "make training-env",
    KERAS3: "make keras3-env",
    MXNET: "make mxnet-env, with a Python 3.8",
    DEEPSPEED: "make deepspeed-env",
    RAY: "make ray-env",
}


def needs(environment: Path) -> None:
    """Skip a test without its environment; in CI it fails."""
    ready = (environment / ".ready").exists()
    need(ready, f"there is no {environment.name} to train in: {_HOW[environment]}")


def apps_packages() -> str:
    """Return the folder with the app's packages, for the training's Python to import."""
    folder = sysconfig.get_path("purelib")
    versions = ENVIRONMENT.glob(f"lib/{Path(folder).parent.name}")
    need(list(versions), "the app and the training have different versions of Python here")
    return folder
