"""Train cells of the frameworks chapter with PyTorch, under torchrun; frameworks.py starts it.

Ray's training has the same data, model and faults.

torchrun --nproc-per-node 2 benchmarks/scorecard/train_frameworks_torch.py CELLS OUT
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from cells import read_cells
from injection import Injection, Launch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, default_collate

from stallscope.torch import StepLogger

BATCH, WIDTH, CLASSES = 16, 64, 10
#: A rank waits so long in each forward pass, as for a device.
DEVICE_SECONDS = 0.012
#: Of a pipeline's step.
MICRO_BATCHES = 4

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
    _loop(injection, log_dir, steps, torch.compile(model))


def fsdp(injection: Injection, log_dir: Path, steps: int) -> None:
    from torch.distributed.fsdp import fully_shard

    model = Network(injection)
    fully_shard(model.first)
    fully_shard(model.second)
    fully_shard(model)
    _loop(injection, log_dir, steps, model)


def hybrid(injection: Injection, log_dir: Path, steps: int) -> None:
    """Train two replicas, each of which four ranks share."""
    from torch.distributed.fsdp import fully_shard

    model, mesh = Network(injection), mesh_of("replicate", 2, "shard")
    for part in (model.first, model.second, model):
        fully_shard(part, mesh=mesh)
    _loop(injection, log_dir, steps, model)


def fsdp_1(injection: Injection, log_dir: Path, steps: int) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model, device = Network(injection), torch.device("cpu")
    model.first = FullyShardedDataParallel(model.first, device_id=device)
    model.second = FullyShardedDataParallel(model.second, device_id=device)
    _loop(injection, log_dir, steps, FullyShardedDataParallel(model, device_id=device))


def tensor(injection: Injection, log_dir: Path, steps: int) -> None:
    """Train four replicas, in each of which two ranks share every layer."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    ranks = torch.distributed.get_world_size()
    model, mesh = Network(injection), mesh_of("dp", ranks // 2, "tp")
    parts = {name: ColwiseParallel(output_layouts=Replicate()) for name in ("first", "second")}
    parallelize_module(model, mesh["tp"], parts)
    _loop(injection, log_dir, steps, fully_shard(model, mesh=mesh["dp"]))


def pipeline(injection: Injection, log_dir: Path, steps: int) -> None:
    """Train two replicas of a pipeline with a stage per other rank."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    stages = torch.distributed.get_world_size() // 2
    mesh = mesh_of("pp", stages, "dp")
    number, replicas = mesh.get_local_rank("pp"), mesh.get_group("dp")
    model = Stage(injection, CLASSES if number == stages - 1 else WIDTH)
    stage = PipelineStage(model, number, stages, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=nn.functional.cross_entropy)
    optimizer = sgd(model)
    with logger(injection, log_dir, optimizer=optimizer, model=model) as log:
        for batch in log.watch(loader(injection, steps)):
            optimizer.zero_grad()
            arguments = () if number else (batch["inputs"],)
            last = {"target": batch["labels"], "losses": []} if number == stages - 1 else {}
            schedule.step(*arguments, **last)
            for parameter in model.parameters():
                torch.distributed.all_reduce(parameter.grad, group=replicas)
            optimizer.step()


class Stage(nn.Module):
    """A layer that waits for a device; the fault is in the backward pass of a micro-batch per step."""

    def __init__(self, injection: Injection, width: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(WIDTH, width)
        self._injection = injection
        self._micro_batches = itertools.count()

    def forward(self, inputs: Tensor) -> Tensor:
        time.sleep(DEVICE_SECONDS / MICRO_BATCHES)
        outputs = torch.tanh(self.layer(inputs))
        # A stage is first called to learn the shapes of its outputs, without gradients.
        if torch.is_grad_enabled() and next(self._micro_batches) % MICRO_BATCHES == 0:
            outputs = InBackward.apply(outputs, self._injection)
        return outputs


def mesh_of(across: str, size: int, within: str) -> Any:
    """Return the ranks in two dimensions: so many rows, and all others in each."""
    from torch.distributed.device_mesh import init_device_mesh

    columns = torch.distributed.get_world_size() // size
    return init_device_mesh("cpu", (size, columns), mesh_dim_names=(across, within))


def _loop(injection: Injection, log_dir: Path, steps: int, model: nn.Module) -> None:
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
    "hybrid": hybrid,
    "fsdp_1": fsdp_1,
    "tensor": tensor,
    "pipeline": pipeline,
}


def main() -> None:
    plan, out = Path(sys.argv[1]), Path(sys.argv[2])
    cells, steps = read_cells(plan)
    framework = cells[0].framework
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    launch = Launch(
        out, cells, steps, torch.distributed.get_rank(), batches=batches_per_step(framework)
    )
    launch.train(TRAININGS[framework], agree)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
