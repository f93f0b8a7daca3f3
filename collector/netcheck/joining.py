"""Join the other ranks of this launch, with the library that the training uses."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Mapping, Optional

from stallscope.collector.recorder.job.world import world_from_environment
from stallscope.errors import UsageError

from .horovod_ranks import join_with_horovod
from .ranks import Ranks
from .torch_ranks import TorchRanks

HOROVOD, TORCH = "horovod", "torch"
#: The values of ``--with``.
LIBRARIES = (HOROVOD, TORCH)

_MPI_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ALONE = (
    "netcheck runs as one process, and a network needs two ranks: start it under the launcher of the "
    "training, such as horovodrun -np 4 stallscope netcheck LOGS, or "
    "torchrun --nproc-per-node 4 -m stallscope netcheck LOGS"
)


def library_of(env: Mapping[str, str], has_horovod: bool) -> Optional[str]:
    """Return the library that fits the launcher's variables; None without a launcher.

    Args:
        env: the variables.
        has_horovod: whether Horovod is installed; MPI starts other programs, too.
    """
    if "HOROVOD_RANK" in env:
        return HOROVOD
    if has_horovod and any(name in env for name in _MPI_RANKS):
        return HOROVOD
    if "RANK" in env and "WORLD_SIZE" in env:
        return TORCH
    return None


def join(
    env: Mapping[str, str], library: Optional[str] = None, framework: Optional[str] = None
) -> Ranks:
    """Join the other ranks.

    Args:
        env: the launcher's variables.
        library: one of ``LIBRARIES``; None for the one that fits the variables.
        framework: one of ``FRAMEWORKS``, for Horovod; None for the first that it was built for.

    Raises:
        UsageError: if there are no other ranks, or the framework is missing.
    """
    # Horovod may get its ranks from MPI, without variables that are known here.
    may_be_alone = library != HOROVOD and world_from_environment(env).size < 2
    library = library or library_of(env, importlib.util.find_spec("horovod") is not None)
    if library is None or may_be_alone:
        raise UsageError(_ALONE)
    ranks = join_with_horovod(framework) if library == HOROVOD else _join_with_torch(env)
    if ranks.size < 2:
        ranks.close()
        raise UsageError(_ALONE)
    return ranks


def _join_with_torch(env: Mapping[str, str]) -> Ranks:
    missing = [name for name in _TORCHRUN if name not in env]
    if missing:
        raise UsageError(
            "torch.distributed needs %s: start netcheck with torchrun, or pass --with horovod under "
            "horovodrun" % ", ".join(missing)
        )
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("torch.distributed")
    except Exception as error:  # broken installations raise anything
        raise UsageError(
            "torch cannot be imported here (%s): run netcheck in the Python environment of the training"
            % error
        ) from None
    return TorchRanks(torch)
