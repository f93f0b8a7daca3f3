"""Facts of a Keras model and of TensorFlow's settings."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Dict, Optional

import tensorflow as tf

from ..identity import World
from .instrument import innermost, passes_per_step

_HOROVOD_MODULES = (
    "horovod.tensorflow.keras",
    "horovod.keras",
    "horovod.tensorflow",
    "horovod.torch",
)


def horovod_world() -> Optional[World]:
    """The rank as Horovod tells it, where the training script has initialised it."""
    for name in _HOROVOD_MODULES:
        horovod = sys.modules.get(name)
        if horovod is not None and horovod.is_initialized():
            return World(horovod.rank(), horovod.size(), horovod.local_rank())
    return None


def model_facts(model: Any, size: int) -> Dict[str, Any]:
    optimizer = innermost(model.optimizer)
    rate = _learning_rate(optimizer)
    return {
        "framework": "tensorflow",
        "versions": {
            "tensorflow": tf.__version__,
            "keras": keras_version(),
            "horovod": _version("horovod"),
        },
        "model": model.name,
        "parameters": model.count_params() if model.built else None,
        "optimizer": type(optimizer).__name__,
        "learning_rate": rate,
        "learning_rate_scaled": _scaled(optimizer, rate, size),
        "backward_passes_per_step": passes_per_step(optimizer),
        "steps_per_execution": steps_per_execution(model),
        "threads": {
            "inter_op": tf.config.threading.get_inter_op_parallelism_threads(),
            "intra_op": tf.config.threading.get_intra_op_parallelism_threads(),
        },
        "loader_workers": None,
        "devices": [device.device_type for device in tf.config.list_logical_devices()],
    }


def keras_version() -> str:
    """The version behind ``tf.keras``, which has an attribute of its own only in Keras 3."""
    return str(getattr(tf.keras, "__version__", None) or _version("keras") or "2")


def steps_per_execution(model: Any) -> int:
    variable = getattr(model, "_steps_per_execution", None)
    return 1 if variable is None else int(variable.numpy())


def _learning_rate(optimizer: Any) -> Optional[float]:
    """The rate at the start; None where a schedule sets it."""
    rate = getattr(optimizer, "learning_rate", None)
    try:
        return float(rate.numpy() if hasattr(rate, "numpy") else rate)
    except (TypeError, ValueError):
        return None


def _scaled(optimizer: Any, rate: Optional[float], size: int) -> Optional[bool]:
    """Whether the rate is the optimizer's default times the number of ranks.

    None where nothing can be said: any other rate may be a tuned one.
    """
    parameter = inspect.signature(type(optimizer).__init__).parameters.get("learning_rate")
    if rate is None or size < 2 or parameter is None or not isinstance(parameter.default, float):
        return None
    for expected, scaled in ((parameter.default * size, True), (parameter.default, False)):
        if abs(rate - expected) <= 1e-6 * expected:
            return scaled
    return None


def _version(module: str) -> Optional[str]:
    return getattr(sys.modules.get(module), "__version__", None)
