"""Train cells of the scorecard with PyTorch and Horovod; real.py starts it.

horovodrun -np 2 python benchmarks/scorecard/train_torch.py CELLS OUT
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from injection import Injection, Launch, Machine

MACHINE = Machine.of_this_rank()

import horovod.torch as hvd  # noqa: E402  # after pinning: it makes threads
import torch  # noqa: E402
from cells import read_cells  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from stallscope.torch import StepLogger  # noqa: E402

# Few parameters and many samples: steps that are mostly a fixed amount of work.
BATCH = MACHINE.samples(6144)
WIDTH = 64
LAYERS = 2


class Batches(IterableDataset):
    """One batch again and again, each delayed by the fault."""

    def __init__(self, injection: Injection, steps: int) -> None:
        generator = torch.Generator().manual_seed(hvd.rank())
        x = torch.randn(BATCH, WIDTH, generator=generator)
        self._batch = x, torch.randint(10, (BATCH,), generator=generator)
        self._injection = injection
        self._steps = steps

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(self._steps):
            self._injection.here("input")
            yield self._batch


class Hook(nn.Module):
    """Passes its input on, delayed by the fault."""

    def __init__(self, injection: Injection) -> None:
        super().__init__()
        self._injection = injection

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self._injection.here("compute")
        MACHINE.wait_for_device()
        return inputs


def network(injection: Injection) -> nn.Module:
    torch.manual_seed(1)
    layers: list[nn.Module] = [Hook(injection)]
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def train(injection: Injection, log_dir: Path, steps: int) -> None:
    model = network(injection)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.001), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    loader = DataLoader(Batches(injection, steps), batch_size=None)
    cell = injection.cell
    with StepLogger(
        log_dir, optimizer=optimizer, model=model, run_name=cell.name, synthetic=cell.synthetic
    ) as log:
        for x, y in log.watch(loader):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            injection.here("other")


def main() -> None:
    cells, out = Path(sys.argv[1]), Path(sys.argv[2])
    hvd.init()
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    launch = Launch(out, *read_cells(cells), hvd.rank())
    launch.train(train, agree=lambda number: hvd.broadcast_object(number, 0))


if __name__ == "__main__":
    main()
