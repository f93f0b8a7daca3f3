"""Find out the rank of this process, the number of ranks, and the launcher."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional, Tuple

#: torchrun's name of a job, the same after its restarts.
TORCHRUN_ID = "TORCHELASTIC_RUN_ID"
# Names that identify no job: torchrun's default, and Spark's for every job.
_NO_NAMES = (["none"], ["0"])
_TORCHRUN_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
_SLURM_TASKS = "SLURM_STEP_NUM_TASKS"
# All tasks of a step of Slurm have these, also where each trains alone.
_OF_STEPS = (("SLURM_JOB_ID", "SLURM_STEP_ID"), ("MASTER_ADDR", "MASTER_PORT"))
# Variables that together name one launch of a job, the same on all of its ranks.
_LAUNCH_VARIABLES: Tuple[Tuple[str, ...], ...] = (
    (TORCHRUN_ID,),
    ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ("PMIX_NAMESPACE",),
    *_OF_STEPS,
)


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
        rank, size = distributed.get_rank(), distributed.get_world_size()
        local_rank = launched.local_rank
        if local_rank is None:
            local_rank = _slurm_local_rank(os.environ, rank, size)
        return World(rank, size, local_rank)
    on_jax = asks_jax or (keras is not None and keras.backend.backend() == "jax")
    if ray is None and jax is not None and on_jax and jax.process_count() > 1:
        rank, size = jax.process_index(), jax.process_count()
        return World(rank, size, _slurm_local_rank(os.environ, rank, size))
    return launched


def _slurm_local_rank(env: Mapping[str, str], rank: int, size: int) -> Optional[int]:
    """Return a rank's number on its host where each rank is a task of srun; None elsewhere.

    srun sets no variables of PyTorch: training takes rank and size from Slurm's own.
    """
    task = _integer(env.get("SLURM_PROCID")), _integer(env.get(_SLURM_TASKS))
    return _integer(env.get("SLURM_LOCALID")) if task == (rank, size) else None


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


# -- Find out which launch of a job this process belongs to, and when it started ------------------
#
# The launcher (torchrun, horovodrun, Slurm and others), Ray Train or JAX knows; no collective is
# started.


def launch_of_training(size: int) -> Optional[str]:
    """Return the name of this launch from Ray Train, otherwise from the launcher or from JAX."""
    ray = ray_worker()
    if ray is not None:
        return ray.launch
    return launch_name(os.environ, size) or _jax_coordinator()


def _jax_coordinator() -> Optional[str]:
    """Return the address at which the processes of ``jax.distributed`` meet; None where unknown."""
    # Not public, and asking it starts no devices.
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    address = getattr(state, "coordinator_address", None)
    return "jax.distributed:%s" % address if isinstance(address, str) else None


def run_id_of_training(log_dir: Path) -> Optional[str]:
    """Return the run's id from the user or Ray Train; None where the ranks must agree on one.

    After a failure Ray may give a host other ranks: only the same id on all hosts keeps their logs
    together. Each log folder of a training is a separate run.
    """
    given = os.environ.get("STALLSCOPE_RUN_ID")
    if given:
        return given
    ray = ray_worker()
    if ray is None:
        return None
    return hashlib.sha256(("%s %s" % (ray.launch, log_dir)).encode()).hexdigest()[:12]


def launch_name(env: Mapping[str, str], size: int) -> Optional[str]:
    """Return a name of this launch that all ranks share; None where the launcher gives none."""
    is_alone = size == 1 and env.get(_SLURM_TASKS, "1") != "1"
    for names in _LAUNCH_VARIABLES:
        if is_alone and names in _OF_STEPS:
            continue
        values = [env.get(name) for name in names]
        if all(values) and values not in _NO_NAMES:
            return ":".join([names[0], *[str(value) for value in values]])
    if size == 1:
        return "process:%s:%d:%d" % (socket.gethostname(), os.getpid(), process_start_ns())
    return None


def rejoins(env: Mapping[str, str]) -> bool:
    """Return whether the launcher may have replaced a process of this rank.

    Then an earlier log of the rank may belong to the same job.
    """
    if ray_worker() is not None:
        return True
    restarts = env.get(_TORCHRUN_RESTARTS, "")
    return is_elastic(env) or (restarts.isdigit() and int(restarts) > 0)


def is_elastic(env: Mapping[str, str]) -> bool:
    """Return whether Horovod may change the ranks of this process while it runs."""
    return env.get("HOROVOD_ELASTIC") == "1"


def job_start_ns() -> Optional[int]:
    """Return when the job began, in monotonic ns; None if it began with its process.

    Ray's workers are older than their jobs: each training function runs in a new thread, this one.
    """
    if ray_worker() is None:
        return None
    return _start_ns("/proc/self/task/%d/stat" % threading.get_native_id())


def process_start_ns(pid: Optional[int] = None) -> int:
    """Return the monotonic time when a process (this one) started, in ns; now where that is unknown."""
    return _start_ns("/proc/%s/stat" % ("self" if pid is None else pid))


def _start_ns(path: str) -> int:
    try:
        stat = Path(path).read_bytes()
        # The command's name, in parentheses, may contain blanks; starttime is the 20th field after it.
        ticks = int(stat.rsplit(b")", 1)[1].split()[19])
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        age_ns = boot_ns - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return time.monotonic_ns() - age_ns
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic_ns()
