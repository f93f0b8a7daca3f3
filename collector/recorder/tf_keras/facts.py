"""Facts of a Keras model and of TensorFlow's settings."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Optional, TypeVar

import tensorflow as tf

from ..facts import horovod_transports
from ..identity import World
from ..learning_rate import scaled_by_ranks
from .keras_2 import keras_version
from .optimizers import compression_of, has_own_variables, innermost, passes_per_step

_Fact = TypeVar("_Fact")

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
    """Facts of the model and its optimizer; None for what a model keeps in a way of its own."""
    optimizer = innermost(getattr(model, "optimizer", None))
    rate = learning_rate(optimizer)
    return {
        "framework": "tensorflow",
        "versions": {
            "tensorflow": tf.__version__,
            "keras": keras_version(),
            "horovod": _version("horovod"),
        },
        "model": known(lambda: model.name),
        "parameters": parameters(model),
        "optimizer": None if optimizer is None else type(optimizer).__name__,
        "learning_rate": rate,
        "learning_rate_scaled": known(
            lambda: scaled_by_ranks(optimizer, "learning_rate", rate, size)
        ),
        "backward_passes_per_step": passes_per_step(optimizer),
        "compression": known(lambda: compression_of(model.optimizer)),
        "compute_dtypes": known(lambda: sorted({layer.compute_dtype for layer in model.layers})),
        "steps_per_execution": known(lambda: steps_per_execution(model)),
        "threads": {
            "inter_op": tf.config.threading.get_inter_op_parallelism_threads(),
            "intra_op": tf.config.threading.get_intra_op_parallelism_threads(),
        },
        "loader_workers": None,
        "reduces_with": horovod_transports() if size > 1 else None,
        "devices": [device.device_type for device in tf.config.list_logical_devices()],
    }


def parameters(model: Any) -> Optional[int]:
    """Numbers in the model's weights; None before it is built."""
    return known(lambda: int(model.count_params()) if model.built else None)


def why_no_stamps(model: Any, stages: bool) -> Optional[str]:
    """Why timestamps must not go into this model's graph; None where they may.

    An error inside a running graph cannot be caught, so this is decided before the trace.
    """
    if not stages:
        return "switched off with stages=False"
    if not keras_version().startswith("2."):
        return "Keras %s builds its train step otherwise" % keras_version()
    if getattr(model, "_jit_compile", None):
        return "jit_compile=True: XLA has no clock"
    if type(model.distribute_strategy).__name__ != "_DefaultDistributionStrategy":
        return "tf.distribute runs the train step in replicas"
    return None


def steps_per_execution(model: Any) -> int:
    variable = getattr(model, "_steps_per_execution", None)
    return 1 if variable is None else int(variable.numpy())


def learning_rate(optimizer: Any) -> Optional[float]:
    """The rate as it is now."""

    def read() -> float:
        rate = innermost(optimizer).learning_rate
        return float(rate.numpy() if hasattr(rate, "numpy") else rate)

    return known(read)


def weights(model: Any) -> Optional[Dict[str, Any]]:
    """Some numbers of the smallest matrix that trains: what ranks that train one model have in common.

    None where they need not be: with variables or process sets of a rank's own.
    """

    def read() -> Optional[Dict[str, Any]]:
        # Vectors begin as zeros or ones mostly, on all ranks alike.
        matrices = [one for one in model.trainable_variables if (one.shape.rank or 0) > 1]
        if not matrices or not tf.executing_eagerly() or has_own_variables(model.optimizer):
            return None
        smallest = min(matrices, key=lambda one: one.shape.num_elements())
        if smallest.shape.num_elements() > _LARGEST_READ:
            return None
        numbers = smallest.numpy().reshape(-1)[:_SOME_WEIGHTS]
        return {"of": smallest.name.partition(":")[0], "values": [float(one) for one in numbers]}

    return known(read)


# Numbers that may be copied from a device, once, of which a few are kept.
_LARGEST_READ = 1_000_000
_SOME_WEIGHTS = 8


def known(read: Callable[[], _Fact]) -> Optional[_Fact]:
    """A fact, or None where it cannot be had: no fact is worth the recording."""
    try:
        return read()
    except Exception:
        return None


def _version(module: str) -> Optional[str]:
    return getattr(sys.modules.get(module), "__version__", None)


def plan(history: Any) -> Dict[str, Optional[int]]:
    """How much is to be trained, as far as ``fit`` knows beforehand: the last epoch, and its batches."""
    params = getattr(history, "params", None) or {}
    epochs, batches = params.get("epochs"), params.get("steps")
    return {
        "epochs": epochs if isinstance(epochs, int) else None,
        "batches_per_epoch": batches if isinstance(batches, int) else None,
    }
