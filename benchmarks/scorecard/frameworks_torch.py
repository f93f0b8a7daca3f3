"""Data, model and faults that the frameworks' trainings with PyTorch share."""

from __future__ import annotations

import time
from typing import Any

import torch
from injection import Injection
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

BATCH, WIDTH, CLASSES = 16, 64, 10
#: A rank waits so long in each forward pass, as for a device.
DEVICE_SECONDS = 0.012

Batch = dict[str, Tensor]


class Samples(Dataset):
    """So many random samples."""

    def __init__(self, number: int) -> None:
        random = torch.Generator().manual_seed(1)
        self._inputs = torch.rand(number, WIDTH, generator=random)
        self._labels = torch.randint(CLASSES, (number,), generator=random)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Batch:
        return {"inputs": self._inputs[index], "labels": self._labels[index]}


class Collate:
    """Makes batches of samples, delayed by the fault."""

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    def __call__(self, samples: list[Batch]) -> Any:
        self._injection.here("input")
        return default_collate(samples)


def loader(injection: Injection, batches: int, readers: int = 1) -> DataLoader:
    """Load so many batches for each of the ranks that share the samples."""
    samples = Samples(batches * BATCH * readers)
    return DataLoader(samples, batch_size=BATCH, collate_fn=Collate(injection))


class InBackward(torch.autograd.Function):
    """Passes its input on, and its gradient delayed by the fault."""

    @staticmethod
    def forward(context: Any, inputs: Tensor, injection: Injection) -> Tensor:
        context.injection = injection
        return inputs.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        context.injection.here("compute")
        return gradient, None


class Network(nn.Module):
    """Two layers that wait for a device in between; the fault is in the backward pass."""

    def __init__(self, injection: Injection) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self._injection = injection

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        hidden = self._delayed(torch.relu(self.first(inputs)))
        return {"loss": nn.functional.cross_entropy(self.second(hidden), labels)}

    @torch.compiler.disable
    def _delayed(self, hidden: Tensor) -> Tensor:
        time.sleep(DEVICE_SECONDS)
        return InBackward.apply(hidden, self._injection)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.001)


def agree(number: float) -> float:
    """Return rank 0's number on every rank."""
    numbers = [number]
    torch.distributed.broadcast_object_list(numbers, 0)
    return numbers[0]
