"""Facts of a Keras 3 model, its optimizer and its backend."""

from __future__ import annotations

import math
import sys
from typing import Any, Dict, List, Optional

import keras

from ..job.facts import gradient_sizes, known, module_version
from ..job.learning_rate import optimizer_facts

# The frameworks' names in reports.
_FRAMEWORKS = {"tensorflow": "tensorflow", "torch": "pytorch", "jax": "jax"}
_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


def framework() -> str:
    """Return the backend's name in reports."""
    return _FRAMEWORKS.get(keras.backend.backend(), str(keras.backend.backend()))


def model_facts(model: Any, size: int) -> Dict[str, Any]:
    """Return facts of the model and its optimizer; None where a custom model stores them elsewhere."""
    backend = keras.backend.backend()
    optimizer = innermost(getattr(model, "optimizer", None))
    rate = known(lambda: float(keras.ops.convert_to_numpy(optimizer.learning_rate)))
    return {
        "framework": framework(),
        "versions": {
            "keras": keras.__version__,
            backend: module_version(backend),
            "horovod": module_version("horovod"),
        },
        "model": known(lambda: model.name),
        **optimizer_facts(optimizer, "learning_rate", rate, size),
        "backward_passes_per_step": passes_per_step(optimizer),
        "steps_per_execution": known(lambda: int(model.steps_per_execution)),
        "compute_dtypes": known(lambda: sorted({layer.compute_dtype for layer in model.layers})),
        "threads": known(_threads),
        "devices": known(lambda: _devices(model)),
        **weights(model),
    }


def weights(model: Any) -> Dict[str, Any]:
    """Return the numbers of parameters and gradients; None before the model is built."""
    trained = known(lambda: list(model.trainable_variables) if model.built else None)
    sizes = None if trained is None else known(lambda: list(map(_bytes, trained)))
    return {
        "parameters": known(lambda: int(model.count_params()) if model.built else None),
        "gradient_tensors": None if trained is None else len(trained),
        **gradient_sizes(sizes),
    }


def _bytes(variable: Any) -> int:
    return _BYTES[str(variable.dtype)] * math.prod(map(int, variable.shape))


def innermost(optimizer: Any) -> Any:
    """Return the optimizer inside loss-scaling wrappers; None where there is none."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return optimizer if inner is None else innermost(inner)


def passes_per_step(optimizer: Any) -> int:
    """Return the backward passes whose gradients are summed before the weights are updated."""
    return int(getattr(innermost(optimizer), "gradient_accumulation_steps", None) or 1)


def passes_counted(optimizer: Any) -> int:
    """Return the backward passes that the optimizer has ever counted; 0 where it counts none."""
    counter = getattr(innermost(optimizer), "_iterations", None)
    return 0 if counter is None else int(keras.ops.convert_to_numpy(counter))


def loader_workers(epoch_iterator: Any) -> Optional[int]:
    """Return the loader's number of workers; None where it has none or it is unknown."""
    adapter = getattr(epoch_iterator, "data_adapter", None)
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
    """Return the kinds of devices; for TensorFlow one entry per device."""
    tensorflow, jax = sys.modules.get("tensorflow"), sys.modules.get("jax")
    if keras.backend.backend() == "tensorflow" and tensorflow is not None:
        return [device.device_type for device in tensorflow.config.list_logical_devices()]
    if keras.backend.backend() == "jax" and jax is not None:
        return sorted({device.platform.upper() for device in jax.local_devices()})
    return sorted({variable.value.device.type.upper() for variable in model.variables})
