"""Find out the rank of this process and the number of ranks, and its worker of Ray Train."""

from __future__ import annotations

import os
import sys
from typing import Any, Mapping, NamedTuple, Optional, Tuple


class World(NamedTuple):
    """The rank of this process, and the number of ranks."""

    rank: int
    size: int
    local_rank: Optional[int]


class RayWorker(NamedTuple):
    """A worker of Ray Train."""

    rank: int
    size: int
    local_rank: int
    #: The name of its training run: the same on all workers, and after restarts.
    launch: str


# Horovod's own order (horovod/runner/common/util/env.py), then torchrun's.
_RANK_VARIABLES: Tuple[Tuple[str, str, str], ...] = (
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
)

_HOROVOD_MODULES = ("horovod.tensorflow", "horovod.torch", "horovod.mxnet")

# Private modules of the two versions of Ray Train that know the run's id.
_CONTEXT = "ray.train.v2._internal.execution.context"
_SESSION_BEFORE_2_51 = "ray.train._internal.session"


def world_from_environment(env: Mapping[str, str]) -> World:
    """Read the rank from the launcher's variables; rank 0 of 1 where there are none."""
    for rank_name, size_name, local_name in _RANK_VARIABLES:
        rank, size = _integer(env.get(rank_name)), _integer(env.get(size_name))
        if rank is not None and size is not None:
            return World(rank, size, _integer(env.get(local_name)))
    return World(0, 1, None)


def initialised_horovod() -> Optional[Any]:
    """Return the module of Horovod that the training script has initialised; None without one."""
    modules = map(sys.modules.get, _HOROVOD_MODULES)
    return next(
        (module for module in modules if module is not None and module.is_initialized()), None
    )


def torch_distributed() -> Optional[Any]:
    """Return ``torch.distributed`` where the training script has initialised it."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def world_of_training(asks_jax: bool = False) -> World:
    """Return the rank from Horovod, torch.distributed, Ray Train or JAX, otherwise from the launcher.

    Args:
        asks_jax: whether to ask JAX. That starts its devices, so only ask where training has started
            them. Keras on JAX is always asked.
    """
    ray = ray_worker()
    launched = world_from_environment(os.environ) if ray is None else World(*ray[:3])
    horovod, distributed = initialised_horovod(), torch_distributed()
    jax, keras = sys.modules.get("jax"), sys.modules.get("keras")
    if horovod is not None:
        return World(horovod.rank(), horovod.size(), horovod.local_rank())
    if distributed is not None:
        return World(distributed.get_rank(), distributed.get_world_size(), launched.local_rank)
    on_jax = asks_jax or (keras is not None and keras.backend.backend() == "jax")
    if ray is None and jax is not None and on_jax and jax.process_count() > 1:
        return World(jax.process_index(), jax.process_count(), None)
    return launched


def ray_worker() -> Optional[RayWorker]:
    """Return this process's worker; None outside of Ray Train.

    Ray's processes have ranks in their environment only once a backend has set them, and may inherit
    those of a launcher that started Ray. After a failure Ray starts other processes of the same training
    run, with another address. Ray is never imported here: its workers have done so.
    """
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        run_id = _run_id()
        context = train.get_context()
        rank, size, local_rank = (
            int(context.get_world_rank()),
            int(context.get_world_size()),
            int(context.get_local_rank()),
        )
        launch = ":".join(["RAY_TRAIN", str(context.get_experiment_name()), run_id])
        return RayWorker(rank, size, local_rank, launch)
    except Exception:  # a driver, or a worker of something else than Ray Train
        return None


def _run_id() -> str:
    """Return Ray's id of the training run, or of its job where another version hides it.

    Raises:
        LookupError: if this process is no worker of Ray Train, which would then log a warning.
    """
    context, session = map(sys.modules.get, (_CONTEXT, _SESSION_BEFORE_2_51))
    known: Any = getattr(context, "_train_context", None)
    if known is not None:
        return str(known.train_run_context.run_id)
    known = None if session is None else session.get_session()
    if known is not None:
        return str(known.trial_info.id)
    if context is not None or session is not None:
        raise LookupError
    return os.environ["RAY_JOB_ID"]


def _integer(text: Optional[str]) -> Optional[int]:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
