"""Train a case of the hangs chapter with PyTorch, on Horovod or DDP; hangs.py starts it.

horovodrun -np 2 python benchmarks/scorecard/train_hangs_torch.py FOLDER
torchrun --nproc-per-node 2 benchmarks/scorecard/train_hangs_torch.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from hangs_plan import Place, read_case
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from stallscope.torch import StepLogger


class Batches(IterableDataset):
    def __init__(self, place: Place) -> None:
        self._place = place

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(self._place.steps):
            self._place.here("loader")
            yield torch.randn(16, 32), torch.randn(16, 8)


class Network(nn.Module):
    """Two layers; the backward pass may hang between them, when half of the gradients are ready."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._first, self._second = nn.Linear(32, 64), nn.Linear(64, 8)
        self._place = place

    def forward(self, inputs: Tensor) -> Tensor:
        self._place.compute()
        hidden = self._first(inputs)
        hidden.register_hook(lambda _: self._place.here("backward"))
        return self._second(hidden)


# The rank, a function that distributes a model with its optimizer, and a collective outside of steps.
Distributed = tuple[int, Callable[..., Any], Callable[[], object]]


def horovod() -> Distributed:
    import horovod.torch as hvd

    hvd.init()

    def distribute(model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return model, hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.001), named_parameters=model.named_parameters()
        )

    return hvd.rank(), distribute, lambda: hvd.allreduce(torch.zeros(1), name="alone")


def ddp() -> Distributed:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    # In the default group it would count as a reduction of gradients.
    group = dist.new_group()

    def distribute(model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
        return DistributedDataParallel(model), torch.optim.SGD(model.parameters(), lr=0.001)

    return dist.get_rank(), distribute, lambda: dist.all_reduce(torch.zeros(1), group=group)


def main() -> None:
    folder = Path(sys.argv[1])
    rank, distribute, collective = ddp() if read_case(folder).framework == "ddp" else horovod()
    torch.set_num_threads(1)
    place = Place(folder, rank)
    place.collective = collective
    model, optimizer = distribute(Network(place))
    loader = DataLoader(Batches(place), batch_size=None)
    with StepLogger(
        place.log_dir, optimizer=optimizer, model=model, run_name=place.case.name
    ) as log:
        for step, (x, y) in enumerate(log.watch(loader)):
            optimizer.zero_grad()
            if step == 0 and place.pauses("first step"):
                place.pause()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            place.here("between")
            place.here("collective")
            if place.pauses("evaluation", step):
                place.evaluate()
            if place.pauses("validation", step):
                with log.validation():
                    place.pause()
            if rank == 0 and place.pauses("checkpoint", step):
                with log.checkpoint():
                    place.pause()


if __name__ == "__main__":
    main()
