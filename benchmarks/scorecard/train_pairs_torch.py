"""Train pairs with PyTorch on Horovod, or on DistributedDataParallel with gloo; pairs.py starts it.

horovodrun -np 2 python benchmarks/scorecard/train_pairs_torch.py PLAN OUT
torchrun --nproc-per-node 2 benchmarks/scorecard/train_pairs_torch.py PLAN OUT
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[2] / "tests" / "training"))
from pairs_launch import BATCH, CLASSES, LAYERS, WIDTH, Delays, Fault, Pause, Rank, Samples
from pairs_plan import Segment, read_plan
from process_group import end_process_group
from torch import nn
from torch.utils.data import DataLoader, Dataset

from stallscope.torch import StepLogger, synthetic_like

#: Makes a model and its optimizer reduce gradients over the ranks.
Distribute = Callable[[nn.Module, torch.optim.Optimizer], tuple[nn.Module, torch.optim.Optimizer]]


class Batches(Dataset):
    """So many batches, each delayed by the fault."""

    def __init__(self, fault: Fault, rank: int, steps: int) -> None:
        self._fault = fault
        self._samples = Samples(rank)
        self._steps = steps

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = self._samples.batch()
        self._fault.here("input")
        return torch.from_numpy(x), torch.from_numpy(y)


class Hook(nn.Module):
    """Pass the input on, delayed by the fault."""

    def __init__(self, fault: Delays) -> None:
        super().__init__()
        self._fault = fault

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self._fault.here("compute")
        return inputs


def network(fault: Delays, depth: int = LAYERS) -> nn.Module:
    """Make the model, with the same weights on every rank; ``depth`` counts its hidden layers."""
    torch.manual_seed(1)
    layers: list[nn.Module] = [Hook(fault)]
    for _ in range(depth):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))


def train(
    segment: Segment,
    fault: Fault,
    log_dir: Path,
    turns: int,
    steps: int,
    pause: Pause,
    *,
    rank: int,
    distribute: Distribute,
) -> None:
    """Train one segment from the start, in turns."""
    model = network(fault)
    model, optimizer = distribute(model, torch.optim.SGD(model.parameters(), lr=0.001))
    batches = Batches(fault, rank, turns * steps)
    data = DataLoader(batches, batch_size=None, num_workers=1 if fault.prefetched else 0)
    synthetic = segment.role == "baseline"
    with StepLogger(
        log_dir, optimizer=optimizer, model=model, run_name=segment.name, synthetic=synthetic
    ) as log:
        watched = log.watch(synthetic_like(data) if synthetic else data)
        for number, (x, y) in enumerate(watched, 1):
            assert len(x) == BATCH
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            fault.here("other")
            if number % steps == 0:
                # The recorder takes this for validation, which is in no step.
                with log.validation():
                    pause()


#: Returns rank 0's number on every rank.
Agree = Callable[[float], float]
#: Trains on a rank of so many, given what reduces gradients over the ranks, and what agrees on numbers.
OnRank = Callable[[int, int, Distribute, Agree], None]


def with_horovod(train_on: OnRank) -> None:
    """Train on this rank, and let Horovod reduce the gradients."""
    import horovod.torch as hvd

    def distribute(
        model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        names = model.named_parameters()
        return model, hvd.DistributedOptimizer(optimizer, named_parameters=names)

    hvd.init()
    train_on(hvd.rank(), hvd.size(), distribute, partial(hvd.broadcast_object, root_rank=0))


def with_ddp(train_on: OnRank) -> None:
    """Train on this rank, and let DistributedDataParallel reduce the gradients."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    def agree(number: float) -> float:
        numbers = [number]
        dist.broadcast_object_list(numbers, 0)
        return numbers[0]

    def distribute(
        model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[nn.Module, torch.optim.Optimizer]:
        return DistributedDataParallel(model), optimizer

    dist.init_process_group("gloo")
    train_on(dist.get_rank(), dist.get_world_size(), distribute, agree)
    end_process_group()


def one_core_per_rank() -> None:
    """Compute in one thread, as recommended where ranks share a machine."""
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)


def main() -> None:
    plan, out = Path(sys.argv[1]), Path(sys.argv[2])

    def train_on(rank: int, ranks: int, distribute: Distribute, agree: Agree) -> None:
        trained = partial(train, rank=rank, distribute=distribute)
        Rank(out, rank, ranks, trained, agree).run(plan)

    one_core_per_rank()
    ddp = read_plan(plan).first_pair.framework == "ddp"
    (with_ddp if ddp else with_horovod)(train_on)


if __name__ == "__main__":
    main()
