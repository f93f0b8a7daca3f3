"""Facts of a Gluon trainer and its parameters."""

from __future__ import annotations

import sys
from typing import Any, Dict, List

import mxnet as mx

from ..job.facts import gradient_sizes, known, module_version
from ..job.learning_rate import optimizer_facts


def is_horovod_trainer(trainer: Any) -> bool:
    horovod = sys.modules.get("horovod.mxnet")
    return horovod is not None and isinstance(trainer, horovod.DistributedTrainer)


def trainer_facts(trainer: Any, size: int) -> Dict[str, Any]:
    """Return facts of the trainer; None where they are unknown before the first batch."""
    optimizer = trainer._optimizer
    rate = known(lambda: float(trainer.learning_rate))
    return {
        "framework": "mxnet",
        "versions": {
            "mxnet": mx.__version__,
            "horovod": module_version("horovod"),
        },
        **optimizer_facts(optimizer, "learning_rate", rate, size),
        "devices": known(lambda: _devices(trainer)),
    }


def weights(trainer: Any) -> Dict[str, Any]:
    """Return the numbers of parameters and gradients; None where shapes are not known yet."""
    trained = [parameter for parameter in trainer._params if parameter.grad_req != "null"]
    return {
        "parameters": known(lambda: sum(_numbers(parameter) for parameter in trainer._params)),
        "gradient_tensors": len(trained),
        **gradient_sizes(known(lambda: list(map(_bytes, trained)))),
    }


def steps_counted(trainer: Any) -> int:
    """Return the updates that the optimizer has ever counted."""
    return int(getattr(trainer._optimizer, "num_update", 0))


def _bytes(parameter: Any) -> int:
    return int(_numbers(parameter) * parameter.data().dtype().itemsize)


def _numbers(parameter: Any) -> int:
    numbers = 1
    for length in parameter.shape:
        if length <= 0:
            raise ValueError("not known before the first batch")
        numbers *= int(length)
    return numbers


def _devices(trainer: Any) -> List[str]:
    contexts = {context for parameter in trainer._params for context in parameter.list_ctx()}
    return sorted({context.device_type.upper() for context in contexts})
