"""Train cells of the chapter on shared models with PyTorch, under torchrun; sharded.py starts it.

torchrun --nproc-per-node 8 benchmarks/scorecard/train_sharded_torch.py CELLS OUT
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any

# DeepSpeed reads it where it is imported.
os.environ["DS_ACCELERATOR"] = "cpu"

import torch
from cells import DIMENSIONS, mesh_shape
from injection import Injection
from sharded_plan import MICRO_BATCHES, WARM_UP, device_seconds
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from train_frameworks_torch import (
    BATCH,
    CLASSES,
    WIDTH,
    InBackward,
    Network,
    loader,
    logger,
    sgd,
    train_launch,
    train_loop,
)


def ddp(injection: Injection, log_dir: Path, steps: int) -> None:
    train_loop(injection, log_dir, steps, DistributedDataParallel(network(injection)))


def fsdp(injection: Injection, log_dir: Path, steps: int) -> None:
    train_loop(injection, log_dir, steps, sharded(network(injection)))


def hybrid(injection: Injection, log_dir: Path, steps: int) -> None:
    """Train replicas, each of which some ranks share."""
    train_loop(injection, log_dir, steps, sharded(network(injection), mesh=mesh_of(injection)))


def tensor(injection: Injection, log_dir: Path, steps: int) -> None:
    """Train replicas in which two ranks share every layer."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    model, mesh = network(injection), mesh_of(injection)
    parts = {name: ColwiseParallel(output_layouts=Replicate()) for name in ("first", "second")}
    parallelize_module(model, mesh["tp"], parts)
    train_loop(injection, log_dir, steps, fully_shard(model, mesh=mesh["dp"]))


def pipeline(injection: Injection, log_dir: Path, steps: int) -> None:
    """Train replicas of a pipeline with four stages."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    mesh = mesh_of(injection)
    stages, _ = mesh_shape(injection.cell.framework, injection.cell.ranks)
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


def zero_3(injection: Injection, log_dir: Path, steps: int) -> None:
    """Train with DeepSpeed's engine, which shards the parameters as well."""
    import deepspeed

    model = network(injection)
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        # Its own optimizer is compiled.
        "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
        "zero_optimization": {"stage": 3},
        "steps_per_print": 10**9,
    }
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    with logger(injection, log_dir, optimizer=optimizer, model=engine) as log:
        for batch in log.watch(loader(injection, steps)):
            engine.backward(engine(**batch)["loss"])
            engine.step()


class Stage(nn.Module):
    """A layer that waits for a device; the fault is in the backward pass of a micro-batch per step."""

    def __init__(self, injection: Injection, width: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(WIDTH, width)
        self._injection = injection
        self._micro_batches = itertools.count()

    def forward(self, inputs: Tensor) -> Tensor:
        cell = self._injection.cell
        time.sleep(device_seconds(cell.framework, cell.ranks) / MICRO_BATCHES)
        outputs = torch.tanh(self.layer(inputs))
        # A stage is first called to learn the shapes of its outputs, without gradients.
        if torch.is_grad_enabled() and next(self._micro_batches) % MICRO_BATCHES == 0:
            outputs = InBackward.apply(outputs, self._injection)
        return outputs


def network(injection: Injection) -> Network:
    cell = injection.cell
    return Network(injection, device_seconds(cell.framework, cell.ranks))


def sharded(model: Network, **options: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for part in (model.first, model.second, model):
        fully_shard(part, **options)
    return model


def mesh_of(injection: Injection) -> DeviceMesh:
    """Return the ranks in the two dimensions of their training."""
    cell = injection.cell
    shape = mesh_shape(cell.framework, cell.ranks)
    return init_device_mesh("cpu", shape, mesh_dim_names=DIMENSIONS[cell.framework])


TRAININGS = {
    "ddp": ddp,
    "fsdp": fsdp,
    "hybrid": hybrid,
    "tensor": tensor,
    "pipeline": pipeline,
    "zero_3": zero_3,
}


if __name__ == "__main__":
    train_launch(TRAININGS, WARM_UP)
