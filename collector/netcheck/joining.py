"""Join the other ranks of this launch, with the library that the training uses, or torch.distributed."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any, List, Mapping, Optional, Sequence

from stallscope.collector.recorder.job.world import world_from_environment
from stallscope.errors import UsageError

from ..recorder.job.job_facts import module_version
from .horovod_ranks import join_with_horovod
from .ranks import Exchange, Ranks, Run, agreed_device, numbers_in, own_device, partner_in
from .sizes import buckets

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


# -- Ranks that torch.distributed connects --------------------------------------------------------
#
# Gloo on CPUs, NCCL where every rank has a CUDA device.


class TorchRanks(Ranks):
    """The ranks of torchrun.

    Args:
        torch: the module.
    """

    framework = "torch"
    reduced_by = "torch.distributed"

    def __init__(self, torch: Any) -> None:
        self._torch, self._distributed = torch, torch.distributed
        self._distributed.init_process_group("gloo")
        self.rank = self._distributed.get_rank()
        self.size = self._distributed.get_world_size()
        local_rank = world_from_environment(os.environ).local_rank or 0
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        device = agreed_device(self, own_device(count, local_rank))
        #: Carries what is measured; values are shared by the default group, which is always gloo.
        self._group: Optional[Any] = None
        if device is not None:
            torch.cuda.set_device(device)
            self.device = "cuda"
            self._group = self._distributed.new_group(backend="nccl")
        self.reduces_with = ["nccl" if device is not None else "gloo"]
        self.versions = {"torch": module_version("torch")}

    def messages(self, gradients: Sequence[int], bucket_bytes: Optional[int]) -> List[int]:
        return buckets(gradients, bucket_bytes)

    def allreduce(self, name: str, sizes: Sequence[int], apart: bool = False) -> Run:
        tensors = [self._zeros(size) for size in sizes]

        def run() -> None:
            # torch fuses nothing: every call is a message.
            works = [
                self._distributed.all_reduce(tensor, group=self._group, async_op=True)
                for tensor in tensors
            ]
            self._wait_for(works)

        return run

    def exchange(self, exchanges: Sequence[Exchange]) -> Run:
        exchange = partner_in(exchanges, self.rank)
        if exchange is None:
            return lambda: None
        partner, size = exchange
        sent, received = self._zeros(size), self._zeros(size)
        distributed, group = self._distributed, self._group

        def run() -> None:
            # As one batch: NCCL would wait for ever if both ranks sent first.
            operations = [
                distributed.P2POp(distributed.isend, sent, partner, group),
                distributed.P2POp(distributed.irecv, received, partner, group),
            ]
            self._wait_for(distributed.batch_isend_irecv(operations))

        return run

    def broadcast(self, value: Any) -> Any:
        values = [value]
        self._distributed.broadcast_object_list(values, src=0)
        return values[0]

    def collect(self, value: Any) -> List[Any]:
        values: List[Any] = [None] * self.size
        self._distributed.all_gather_object(values, value)
        return values

    def close(self) -> None:
        self._distributed.destroy_process_group()

    def _zeros(self, size: int) -> Any:
        torch = self._torch
        return torch.zeros(numbers_in(size), dtype=torch.float32, device=self.device)

    def _wait_for(self, works: Sequence[Any]) -> None:
        for work in works:
            work.wait()
        if self.device == "cuda":
            self._torch.cuda.synchronize()
