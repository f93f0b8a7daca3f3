"""Define the ranks of a launch, for any library that connects them."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

#: Two ranks that exchange data, and the bytes that each sends to the other.
Exchange = Tuple[int, int, int]
#: Starts something on this rank, and waits until it is done.
Run = Callable[[], None]
#: The size of a number that is sent.
FLOAT_BYTES = 4


class Ranks(ABC):
    """One rank, and its operations together with the others.

    All ranks call the same methods in the same order with the same arguments, except for the values
    that they share.
    """

    rank: int
    size: int
    #: ``torch``, ``tensorflow`` or ``mxnet``.
    framework: str
    #: ``horovod`` or ``torch.distributed``.
    reduced_by: str
    #: Libraries that may carry the data: ``gloo``, ``nccl``, ``mpi``, ``ccl``.
    reduces_with: List[str]
    #: ``cpu`` or ``cuda``.
    device: str = "cpu"
    versions: Dict[str, Optional[str]]

    @abstractmethod
    def allreduce(self, name: str, sizes: Sequence[int], apart: bool = False) -> Run:
        """Return a function that starts the allreduces of all tensors at once, and waits for all.

        Args:
            name: names the tensors, the same way in each run of the function.
            sizes: the tensors' bytes.
            apart: reduce each tensor as a separate message.
        """

    @abstractmethod
    def exchange(self, exchanges: Sequence[Exchange]) -> Run:
        """Return a function that exchanges data within each pair; no rank is in two of them.

        It returns when this rank has sent and received; ranks in no pair need not wait.
        """

    @abstractmethod
    def broadcast(self, value: Any) -> Any:
        """Return the first rank's value, of types that JSON has, on all ranks."""

    @abstractmethod
    def collect(self, value: Any) -> List[Any]:
        """Return the values of all ranks, in their order, on all of them."""

    @abstractmethod
    def close(self) -> None:
        """Leave the other ranks."""

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self._barrier is None:
            self._barrier = self.allreduce("barrier", [FLOAT_BYTES])
        self._barrier()

    _barrier: Optional[Run] = None

    def messages(self, gradients: Sequence[int], bucket_bytes: Optional[int]) -> List[int]:
        """Return the bytes of the tensors that a step reduces.

        Args:
            gradients: the gradients' bytes.
            bucket_bytes: the run's own size of buckets, for libraries that have them.
        """
        return list(gradients)

    def hosts(self) -> List[str]:
        """Return the host of each rank."""
        return [str(host) for host in self.collect(socket.gethostname())]


def numbers_in(size: int) -> int:
    """Return the number of floats that have at least ``size`` bytes."""
    return max(1, -(-size // FLOAT_BYTES))


def partner_in(exchanges: Sequence[Exchange], rank: int) -> Optional[Tuple[int, int]]:
    """Return the rank that this one exchanges data with, and the bytes; None without one."""
    for first, second, size in exchanges:
        if rank in (first, second):
            return (second if rank == first else first), size
    return None


# -- Choose the CUDA device of a rank -------------------------------------------------------------


def own_device(count: int, local_rank: int) -> Optional[int]:
    """Return the number of this rank's device; None without devices.

    Args:
        count: the devices that this process sees; some launchers show each process only its own.
        local_rank: the rank on its host.
    """
    if not count:
        return None
    return local_rank if local_rank < count else 0


def agreed_device(ranks: Ranks, device: Optional[int]) -> Optional[int]:
    """Return the number of this rank's device if every rank has a separate one, otherwise None.

    NCCL refuses two ranks on one device.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    everyone = ranks.collect(None if device is None else [socket.gethostname(), visible, device])
    distinct = {tuple(place) for place in everyone if place is not None}
    return device if len(distinct) == ranks.size else None
