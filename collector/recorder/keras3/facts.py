"""Facts of a Keras 3 model, its optimizer and its backend."""

from __future__ import annotations

import math
import os
import sys
from typing import Any, Callable, Dict, List, Optional, TypeVar

import keras

from ..identity import World, world_from_environment
from ..learning_rate import scaled_by_ranks

_Fact = TypeVar("_Fact")

# What the reports know the frameworks by.
_FRAMEWORKS = {"tensorflow": "tensorflow", "torch": "pytorch", "jax": "jax"}
_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def world_of_training() -> World:
    """The rank as the backend tells it, otherwise as the launcher does."""
    backend = keras.backend.backend()
    if backend == "torch":
        from ..pytorch.facts import world_of_training as torchs

        return torchs()
    if backend == "tensorflow":
        from ..tf_keras.facts import horovod_world

        return horovod_world() or world_from_environment(os.environ)
    jax = sys.modules.get("jax")
    if jax is not None and jax.process_count() > 1:
        return World(jax.process_index(), jax.process_count(), None)
    return world_from_environment(os.environ)


def framework() -> str:
    """What the reports know the backend by."""
    return _FRAMEWORKS.get(keras.backend.backend(), str(keras.backend.backend()))


def model_facts(model: Any, size: int) -> Dict[str, Any]:
    """Facts of the model and its optimizer; None for what a model keeps in a way of its own."""
    backend = keras.backend.backend()
    optimizer = innermost(getattr(model, "optimizer", None))
    rate = _known(lambda: float(keras.ops.convert_to_numpy(optimizer.learning_rate)))
    return {
        "framework": framework(),
        "versions": {
            "keras": keras.__version__,
            backend: _version(backend),
            "horovod": _version("horovod"),
        },
        "model": _known(lambda: model.name),
        "optimizer": None if optimizer is None else type(optimizer).__name__,
        "learning_rate": rate,
        "learning_rate_scaled": _known(
            lambda: scaled_by_ranks(optimizer, "learning_rate", rate, size)
        ),
        "backward_passes_per_step": passes_per_step(optimizer),
        "steps_per_execution": _known(lambda: int(model.steps_per_execution)),
        "compute_dtypes": _known(lambda: sorted({layer.compute_dtype for layer in model.layers})),
        "threads": _known(_threads),
        "devices": _known(lambda: _devices(model)),
        **weights(model),
    }


def weights(model: Any) -> Dict[str, Any]:
    """The model's numbers and gradients; None before it is built."""
    trained = _known(lambda: list(model.trainable_variables) if model.built else None)
    return {
        "parameters": _known(lambda: int(model.count_params()) if model.built else None),
        "gradient_tensors": None if trained is None else len(trained),
        "gradient_bytes": _known(
            lambda: (
                sum(_BYTES[str(one.dtype)] * math.prod(one.shape) for one in trained or [])
                if trained is not None
                else None
            )
        ),
    }


def plan(params: Any, epoch_iterator: Any) -> Dict[str, Optional[int]]:
    """How much is to be trained, as far as ``fit`` knows beforehand, and who loads it."""
    params = params or {}
    epochs, batches = params.get("epochs"), params.get("steps")
    return {
        "epochs": epochs if isinstance(epochs, int) else None,
        "batches_per_epoch": batches if isinstance(batches, int) else None,
        "loader_workers": _loader_workers(getattr(epoch_iterator, "data_adapter", None)),
    }


def innermost(optimizer: Any) -> Any:
    """The optimizer inside those that scale the loss; None where there is none."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return optimizer if inner is None else innermost(inner)


def passes_per_step(optimizer: Any) -> int:
    """Backward passes whose gradients are summed before the weights are updated."""
    return int(getattr(innermost(optimizer), "gradient_accumulation_steps", None) or 1)


def passes_counted(optimizer: Any) -> int:
    """Backward passes that the optimizer has counted in its life; 0 where it counts none."""
    counter = getattr(innermost(optimizer), "_iterations", None)
    return 0 if counter is None else int(keras.ops.convert_to_numpy(counter))


def _loader_workers(adapter: Any) -> Optional[int]:
    loaders = [getattr(adapter, name, None) for name in ("_dataloader", "py_dataset")]
    counts = [
        getattr(loader, name, None) for loader in loaders for name in ("num_workers", "workers")
    ]
    return next((count for count in counts if isinstance(count, int)), None)


def _threads() -> Optional[Dict[str, int]]:
    tensorflow, torch = sys.modules.get("tensorflow"), sys.modules.get("torch")
    if keras.backend.backend() == "tensorflow" and tensorflow is not None:
        threading = tensorflow.config.threading
        return {
            "inter_op": threading.get_inter_op_parallelism_threads(),
            "intra_op": threading.get_intra_op_parallelism_threads(),
        }
    if keras.backend.backend() == "torch" and torch is not None:
        return {"inter_op": torch.get_num_interop_threads(), "intra_op": torch.get_num_threads()}
    return None


def _devices(model: Any) -> List[str]:
    """The kinds of devices there are; in TensorFlow, every one of them."""
    tensorflow, jax = sys.modules.get("tensorflow"), sys.modules.get("jax")
    if keras.backend.backend() == "tensorflow" and tensorflow is not None:
        return [device.device_type for device in tensorflow.config.list_logical_devices()]
    if keras.backend.backend() == "jax" and jax is not None:
        return sorted({device.platform.upper() for device in jax.local_devices()})
    return sorted({variable.value.device.type.upper() for variable in model.variables})


def _known(read: Callable[[], _Fact]) -> Optional[_Fact]:
    """A fact, or None where it cannot be had: no fact is worth the recording."""
    try:
        return read()
    except Exception:
        return None


def _version(module: str) -> Optional[str]:
    version = getattr(sys.modules.get(module), "__version__", None)
    return None if version is None else str(version)
