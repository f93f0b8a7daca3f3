"""Ranks that torch.distributed connects: gloo on CPUs, NCCL where every rank has a CUDA device."""

from __future__ import annotations

import os
from typing import Any, List, Optional, Sequence

from stallscope.collector.recorder.job.facts import module_version
from stallscope.collector.recorder.job.world import world_from_environment

from .cuda_device import agreed_device, own_device
from .ranks import Exchange, Ranks, Run, numbers_in, partner_in
from .sizes import buckets


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
