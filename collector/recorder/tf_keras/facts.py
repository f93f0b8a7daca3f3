"""Facts of a Keras model and of TensorFlow's settings."""

from __future__ import annotations

from typing import Any, Dict, Optional

import tensorflow as tf

from ..job.facts import SWITCHED_OFF, horovod_transports, known, module_version
from ..job.learning_rate import optimizer_facts
from .keras_2 import keras_version
from .optimizers import compression_of, has_own_variables, innermost, passes_per_step


def model_facts(model: Any, size: int) -> Dict[str, Any]:
    """Return facts of the model and its optimizer; None where a custom model stores them elsewhere."""
    optimizer = innermost(getattr(model, "optimizer", None))
    rate = learning_rate(optimizer)
    return {
        "framework": "tensorflow",
        "versions": {
            "tensorflow": tf.__version__,
            "keras": keras_version(),
            "horovod": module_version("horovod"),
        },
        "model": known(lambda: model.name),
        "parameters": parameters(model),
        **optimizer_facts(optimizer, "learning_rate", rate, size),
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
    """Return the number of parameters; None before the model is built."""
    return known(lambda: int(model.count_params()) if model.built else None)


def why_no_timestamps(model: Any, stages: bool) -> Optional[str]:
    """Return why timestamps must not go into this model's graph; None where they may.

    An error inside a running graph cannot be caught, so this is decided before the trace.
    """
    if not stages:
        return SWITCHED_OFF
    if not keras_version().startswith("2."):
        return "Keras %s builds its train step differently" % keras_version()
    if getattr(model, "_jit_compile", None):
        return "jit_compile=True: XLA has no clock"
    if type(model.distribute_strategy).__name__ != "_DefaultDistributionStrategy":
        return "tf.distribute runs the train step in replicas"
    return None


def steps_per_execution(model: Any) -> int:
    variable = getattr(model, "_steps_per_execution", None)
    return 1 if variable is None else int(variable.numpy())


def learning_rate(optimizer: Any) -> Optional[float]:
    """Return the current learning rate."""

    def read() -> float:
        rate = innermost(optimizer).learning_rate
        return float(rate.numpy() if hasattr(rate, "numpy") else rate)

    return known(read)


def weights(model: Any) -> Optional[Dict[str, Any]]:
    """Return some numbers of the smallest trained matrix, which are equal on ranks that train one model.

    None where they may differ: with variables or process sets of single ranks.
    """

    def read() -> Optional[Dict[str, Any]]:
        # Vectors mostly start as zeros or ones, equal on all ranks anyway.
        matrices = [
            variable for variable in model.trainable_variables if (variable.shape.rank or 0) > 1
        ]
        if not matrices or not tf.executing_eagerly() or has_own_variables(model.optimizer):
            return None
        smallest = min(matrices, key=lambda matrix: matrix.shape.num_elements())
        if smallest.shape.num_elements() > _LARGEST_READ:
            return None
        numbers = smallest.numpy().reshape(-1)[:_SOME_WEIGHTS]
        return {
            "of": smallest.name.partition(":")[0],
            "values": [float(number) for number in numbers],
        }

    return known(read)


# Numbers that may be copied from a device once; only a few of them are kept.
_LARGEST_READ = 1_000_000
_SOME_WEIGHTS = 8
