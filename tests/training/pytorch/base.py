"""What all cases of PyTorch share: data, a model, and a training in the way of this launch."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import Any, Callable

import torch
from case_runner import Cases, digest
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from stallscope.torch import StepLogger

HOROVOD = "HOROVOD_RANK" in os.environ
DDP = "TORCHELASTIC_RUN_ID" in os.environ
RANKED = HOROVOD or DDP
if HOROVOD:
    import horovod.torch as hvd

BATCH = 16
STEPS = 12
INPUTS = 8
HIDDEN = 64
CLASSES = 4
#: The length of a delay that a test looks for in the log.
SLOW_SECONDS = 0.01
#: The delay of the slow rank, longer than other delays on a busy machine.
FAULT_SECONDS = 0.12

RANKS, ALONE = Cases(), Cases()
ranked, alone = RANKS.add, ALONE.add


def rank() -> int:
    if HOROVOD:
        return hvd.rank()
    return torch.distributed.get_rank() if DDP else 0


class Case:
    """The folder and the data of a case."""

    def __init__(self, folder: Path) -> None:
        self.rank = rank()
        self.folder = folder

    def logs(self, name: str = "logs") -> str:
        return str(self.folder / name)

    def loader(self, steps: int = STEPS, **options: Any) -> DataLoader:
        """Return a loader of this rank's batches, the same ones each time."""
        return DataLoader(self.data(steps * BATCH), batch_size=BATCH, **options)

    def data(self, samples: int) -> TensorDataset:
        return samples_of(self.rank, samples)


def samples_of(rank: int, samples: int) -> TensorDataset:
    """Return samples of a rank, the same ones each time."""
    random = torch.Generator().manual_seed(7 + rank)
    inputs = torch.rand(samples, INPUTS, generator=random)
    return TensorDataset(inputs, torch.randint(CLASSES, (samples,), generator=random))


class Net(nn.Module):
    """Two layers, with a function between them that a case may replace."""

    def __init__(self, between: Callable[[Any], Any] | None = None, unused: bool = False) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.first = nn.Linear(INPUTS, HIDDEN)
        self.second = nn.Linear(HIDDEN, CLASSES)
        self.between = between or torch.relu
        if unused:
            self.unused = nn.Linear(3, 3)

    def forward(self, inputs: Any) -> Any:
        return self.second(self.between(self.first(inputs)))


class Training:
    """A model and its optimizer, distributed in the way of this launch."""

    def __init__(
        self, net: Any = None, passes: int = 1, base: Any = None, **ddp_options: Any
    ) -> None:
        self.net = net or Net()
        base = (base or (lambda parameters: torch.optim.SGD(parameters, 0.1)))(
            self.net.parameters()
        )
        self.model, self.optimizer = self.net, base
        if HOROVOD:
            named = self.net.named_parameters()
            self.optimizer = hvd.DistributedOptimizer(
                base, named_parameters=named, backward_passes_per_step=passes
            )
            hvd.broadcast_parameters(self.net.state_dict(), root_rank=0)
        elif DDP:
            self.model = DistributedDataParallel(self.net, **ddp_options)

    def logger(self, case: Case, name: str = "logs", **options: Any) -> StepLogger:
        model = self.model if DDP else None
        return StepLogger(case.logs(name), optimizer=self.optimizer, model=model, **options)

    def backward(self, batch: Any) -> Any:
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        return loss

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.backward(batch)
        self.optimizer.step()

    def recorded(self, case: Case, step: Any = None, loader: Any = None, **options: Any) -> Any:
        """Record two epochs; return the weights, and what the recorder has left behind."""
        with self.logger(case, **options) as log:
            for _ in range(2):
                for batch in log.watch(loader or case.loader()):
                    (step or self.step)(batch)
        return self.seen()

    def silent(self, case: Case, step: Any = None) -> str:
        """Train the same without the recorder; return the weights."""
        for _ in range(2):
            for batch in case.loader():
                (step or self.step)(batch)
        return self.weights()

    def seen(self, **more: Any) -> dict[str, Any]:
        return {"weights": self.weights(), "ours": self.ours(), **more}

    def weights(self) -> str:
        return digest(parameter.detach().numpy() for parameter in self.net.parameters())

    def ours(self) -> list[str]:
        """Return what the recorder has left behind in model and optimizer."""
        left = [
            f"hook of {name}"
            for name, parameter in self.net.named_parameters()
            if getattr(parameter, "_post_accumulate_grad_hooks", None)
            or getattr(parameter, "_backward_hooks", None)
        ]
        left += ["synchronize"] * ("synchronize" in vars(self.optimizer))
        left += ["forward hook"] * bool(self.model._forward_pre_hooks)
        left += ["module's forward hook"] * bool(self.net._forward_pre_hooks)
        left += ["update hook"] * bool(self.optimizer._optimizer_step_post_hooks)
        return left


def accumulating(training: Training, passes: int) -> Callable[[Any], None]:
    """Return a step that updates the model only in every so many iterations."""
    iterations = itertools.count()

    def step(batch: Any) -> None:
        last = next(iterations) % passes == passes - 1
        with contextlib.nullcontext() if last or not DDP else training.model.no_sync():
            training.backward(batch)
        if last:
            training.optimizer.step()
            training.optimizer.zero_grad()

    return step
