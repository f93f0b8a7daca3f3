"""The PyTorch training of pairs, for any way to reduce its gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from pairs_data import BATCH, CLASSES, LAYERS, WIDTH, Samples
from pairs_launch import Fault
from pairs_plan import Segment
from pairs_turns import Pause
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

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault = fault

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self._fault.here("compute")
        return inputs


def network(fault: Fault) -> nn.Module:
    """Make the model, with the same weights on every rank."""
    torch.manual_seed(1)
    layers: list[nn.Module] = [Hook(fault)]
    for _ in range(LAYERS):
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


def one_thread() -> None:
    """Compute on one core per rank, as recommended where ranks share a machine."""
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
