"""Facts of a Gluon trainer and what it trains."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, List, Optional, TypeVar

import mxnet as mx

from ..identity import World, world_from_environment
from ..learning_rate import scaled_by_ranks

_Fact = TypeVar("_Fact")


def world_of_training() -> World:
    """The rank as Horovod tells it, otherwise as the launcher does."""
    horovod = sys.modules.get("horovod.mxnet")
    if horovod is not None:
        try:
            return World(horovod.rank(), horovod.size(), horovod.local_rank())
        except ValueError:  # not initialised
            pass
    return world_from_environment(os.environ)


def is_horovods(trainer: Any) -> bool:
    horovod = sys.modules.get("horovod.mxnet")
    return horovod is not None and isinstance(trainer, horovod.DistributedTrainer)


def trainer_facts(trainer: Any, size: int) -> Dict[str, Any]:
    """Facts of the trainer; None for what is not known before the first batch."""
    optimizer = trainer._optimizer
    rate = _known(lambda: float(trainer.learning_rate))
    return {
        "framework": "mxnet",
        "versions": {
            "mxnet": mx.__version__,
            "horovod": getattr(sys.modules.get("horovod"), "__version__", None),
        },
        "optimizer": type(optimizer).__name__,
        "learning_rate": rate,
        "learning_rate_scaled": _known(
            lambda: scaled_by_ranks(optimizer, "learning_rate", rate, size)
        ),
        "devices": _known(lambda: _devices(trainer)),
    }


def weights(trainer: Any) -> Dict[str, Any]:
    """Numbers and gradients; None where shapes are not known yet."""
    trained = [parameter for parameter in trainer._params if parameter.grad_req != "null"]
    return {
        "parameters": _known(lambda: sum(_numbers(one) for one in trainer._params)),
        "gradient_tensors": len(trained),
        "gradient_bytes": _known(
            lambda: sum(_numbers(one) * one.data().dtype().itemsize for one in trained)
        ),
    }


def steps_counted(trainer: Any) -> int:
    """Updates that the optimizer has counted in its life."""
    return int(getattr(trainer._optimizer, "num_update", 0))


def _numbers(parameter: Any) -> int:
    numbers = 1
    for length in parameter.shape:
        if length <= 0:
            raise ValueError("not known before the first batch")
        numbers *= int(length)
    return numbers


def _devices(trainer: Any) -> List[str]:
    contexts = {context for one in trainer._params for context in one.list_ctx()}
    return sorted({context.device_type.upper() for context in contexts})


def _known(read: Callable[[], _Fact]) -> Optional[_Fact]:
    """A fact, or None where it cannot be had: no fact is worth the recording."""
    try:
        return read()
    except Exception:
        return None
