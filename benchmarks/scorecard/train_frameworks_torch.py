"""Train cells of the frameworks chapter with PyTorch, under torchrun; frameworks.py starts it.

Ray's training has the same data, model and faults, and so have those of models that ranks share.

torchrun --nproc-per-node 2 benchmarks/scorecard/train_frameworks_torch.py CELLS OUT
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2] / "tests" / "training"))
from cells import read_cells
from injection import WARM_UP, Injection, Launch
from process_group import end_process_group
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, default_collate

from stallscope.torch import StepLogger

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

    def __init__(
        self, injection: Injection, device_seconds: float = DEVICE_SECONDS, width: int = WIDTH
    ) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(WIDTH, width), nn.Linear(width, CLASSES)
        self._injection = injection
        self._device_seconds = device_seconds

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        hidden = self._delayed(torch.relu(self.first(inputs)))
        return {"loss": nn.functional.cross_entropy(self.second(hidden), labels)}

    @torch.compiler.disable
    def _delayed(self, hidden: Tensor) -> Tensor:
        time.sleep(self._device_seconds)
        return InBackward.apply(hidden, self._injection)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.001)


def agree(number: float) -> float:
    """Return rank 0's number on every rank."""
    numbers = [number]
    torch.distributed.broadcast_object_list(numbers, 0)
    return numbers[0]


# -- the trainings -------------------------------------------------------------------------------


def batches_per_step(framework: str) -> int:
    return 2 if framework in ("accumulate", "no_sync") else 1


def logger(injection: Injection, log_dir: Path, **options: Any) -> StepLogger:
    cell = injection.cell
    return StepLogger(log_dir, run_name=cell.name, synthetic=cell.synthetic, **options)


def transformers(injection: Injection, log_dir: Path, steps: int) -> None:
    from transformers import Trainer, TrainingArguments

    from stallscope.transformers import StepLogger

    cell = injection.cell
    with tempfile.TemporaryDirectory() as saved:
        arguments = TrainingArguments(
            saved,
            use_cpu=True,
            ddp_backend="gloo",
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            optim="sgd",
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )
        Trainer(
            Network(injection),
            arguments,
            train_dataset=Samples(steps * BATCH * cell.ranks),
            data_collator=Collate(injection),
            callbacks=[StepLogger(log_dir, run_name=cell.name, synthetic=cell.synthetic)],
        ).train()


def accelerate(injection: Injection, log_dir: Path, steps: int) -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    batches, net = batches_per_step(injection.cell.framework), Network(injection)
    AcceleratorState._reset_state()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=batches)
    data = loader(injection, steps * batches, readers=injection.cell.ranks)
    model, optimizer, data = accelerator.prepare(net, sgd(net), data)
    with logger(injection, log_dir, optimizer=optimizer, model=model) as log:
        for batch in log.watch(data):
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                optimizer.step()
                optimizer.zero_grad()


def no_sync(injection: Injection, log_dir: Path, steps: int) -> None:
    batches = batches_per_step(injection.cell.framework)
    model = DistributedDataParallel(Network(injection))
    optimizer = sgd(model)
    with logger(injection, log_dir, optimizer=optimizer, model=model) as log:
        for number, batch in enumerate(log.watch(loader(injection, steps * batches)), 1):
            reduces = number % batches == 0
            with contextlib.nullcontext() if reduces else model.no_sync():
                model(**batch)["loss"].backward()
            if reduces:
                optimizer.step()
                optimizer.zero_grad()


def compiled(injection: Injection, log_dir: Path, steps: int) -> None:
    model = DistributedDataParallel(Network(injection))
    train_loop(injection, log_dir, steps, torch.compile(model))


def fsdp(injection: Injection, log_dir: Path, steps: int) -> None:
    from torch.distributed.fsdp import fully_shard

    model = Network(injection)
    fully_shard(model.first)
    fully_shard(model.second)
    fully_shard(model)
    train_loop(injection, log_dir, steps, model)


def train_loop(injection: Injection, log_dir: Path, steps: int, model: nn.Module) -> None:
    optimizer = sgd(model)
    with logger(injection, log_dir, optimizer=optimizer, model=model) as log:
        for batch in log.watch(loader(injection, steps)):
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()


TRAININGS = {
    "transformers": transformers,
    "accelerate": accelerate,
    "accumulate": accelerate,
    "no_sync": no_sync,
    "compiled": compiled,
    "fsdp": fsdp,
}


def train_launch(
    trainings: Mapping[str, Callable[[Injection, Path, int], None]], warm_up: int = WARM_UP
) -> None:
    """Train the cells of a launch on this rank: the program gets their file and the folder."""
    plan, out = Path(sys.argv[1]), Path(sys.argv[2])
    cells, steps = read_cells(plan)
    framework = cells[0].framework
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, batches = torch.distributed.get_rank(), batches_per_step(framework)
    launch = Launch(out, cells, steps, rank, batches, warm_up)
    launch.train(trainings[framework], agree)
    end_process_group()


if __name__ == "__main__":
    train_launch(TRAININGS)
