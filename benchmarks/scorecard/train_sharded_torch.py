"""Train cells of the chapter on shared models with PyTorch, under torchrun; sharded.py starts it.

torchrun --nproc-per-node 8 benchmarks/scorecard/train_sharded_torch.py CELLS OUT
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# DeepSpeed reads it where it is imported.
os.environ["DS_ACCELERATOR"] = "cpu"

import torch
from cells import DIMENSIONS, HOSTS, mesh_shape
from injection import Injection
from sharded_plan import (
    MICRO_BATCHES,
    TOKEN_SECONDS,
    TOKENS,
    WARM_UP,
    await_links,
    device_seconds,
)
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

#: A layer's width where hosts send its gradients, or several times its shards, over their links.
WIDTH_OF_GRADIENTS, WIDTH_OF_SHARDS = 2048, 512


def ddp(injection: Injection, log_dir: Path, steps: int) -> None:
    train_loop(injection, log_dir, steps, DistributedDataParallel(network(injection)))


def experts(injection: Injection, log_dir: Path, steps: int) -> None:
    """Train layers that all ranks share, and an expert on each."""
    model = ExpertNetwork(injection)
    whole = {*model.expert.parameters()}
    train_loop(injection, log_dir, steps, sharded(model, ignored_params=whole))


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


class ExpertNetwork(Network):
    """A network with an expert on each rank, after the device."""

    def __init__(self, injection: Injection) -> None:
        cell = injection.cell
        super().__init__(injection, device_seconds(cell.framework, cell.ranks))
        self.expert = Expert(injection)

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        hidden = self.expert(self._delayed(torch.relu(self.first(inputs))))
        return {"loss": nn.functional.cross_entropy(self.second(hidden), labels)}


class Expert(nn.Module):
    """This rank's expert, and a router to the experts of random ranks; the fault prefers one."""

    def __init__(self, injection: Injection) -> None:
        super().__init__()
        self._ranks, self._rank = injection.cell.ranks, torch.distributed.get_rank()
        self._injection = injection
        self._token = BATCH * WIDTH // TOKENS
        torch.manual_seed(1 + self._rank)
        self.layer = nn.Linear(self._token, self._token)
        self._random = torch.Generator().manual_seed(injection.cell.seed + self._rank)
        # All routers prefer the same rank as much.
        self._preference = random.Random(injection.cell.seed)
        self._steps = itertools.count()

    def forward(self, inputs: Tensor) -> Tensor:
        step = next(self._steps)
        ranks = torch.multinomial(self._weights(step), TOKENS, True, generator=self._random)
        order = torch.argsort(ranks, stable=True)
        counts = torch.bincount(ranks, minlength=self._ranks)
        sent, received = counts.tolist(), _received(counts)
        tokens = inputs.reshape(TOKENS, self._token)[order]
        routed = _exchange(tokens, received, sent)
        seconds = TOKEN_SECONDS * len(routed)
        self._injection.injected[step] = int((seconds - TOKEN_SECONDS * TOKENS) * 1e9)
        time.sleep(seconds / 2)
        results = Sleeps.apply(torch.relu(self.layer(routed)), seconds / 2)
        returned = _exchange(results, sent, received)
        return inputs + returned[torch.argsort(order)].reshape(inputs.shape)

    def _weights(self, step: int) -> Tensor:
        """Return how likely each rank gets a token; the fault is random, up to twice its size."""
        weights = torch.ones(self._ranks)
        slow, fault_ns = self._injection.fault_in(step)
        more = self._preference.random() * 2 * fault_ns / 1e9 / TOKEN_SECONDS
        for rank in slow:
            tokens = min(TOKENS + more, TOKENS * self._ranks / 2)
            weights[rank] = tokens * (self._ranks - 1) / (TOKENS * self._ranks - tokens)
        return weights


class Sleeps(torch.autograd.Function):
    """Passes its input on, and its gradient after a pause."""

    @staticmethod
    def forward(context: Any, inputs: Tensor, seconds: float) -> Tensor:
        context.seconds = seconds
        return inputs.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        time.sleep(context.seconds)
        return gradient, None


def _received(counts: Tensor) -> list[int]:
    """Return how many tokens come from each rank."""
    received = torch.empty_like(counts)
    torch.distributed.all_to_all_single(received, counts)
    return received.tolist()


def _exchange(rows: Tensor, received: list[int], sent: list[int]) -> Tensor:
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    return all_to_all_single_autograd(rows, received, sent, torch.distributed.group.WORLD)


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
    width = WIDTH
    if cell.framework in HOSTS:
        width = WIDTH_OF_GRADIENTS if cell.framework.startswith("ddp") else WIDTH_OF_SHARDS
    return Network(injection, device_seconds(cell.framework, cell.ranks), width)


def sharded(model: Network, **options: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for part in (model.first, model.second, model):
        fully_shard(part, **options)
    return model


def mesh_of(injection: Injection) -> DeviceMesh:
    """Return the ranks in the two dimensions of their training."""
    return _mesh(injection.cell.framework, injection.cell.ranks)


@functools.cache
def _mesh(framework: str, ranks: int) -> DeviceMesh:
    """Return the same mesh for all cells: the connections of its groups stay open."""
    shape = mesh_shape(framework, ranks)
    return init_device_mesh("cpu", shape, mesh_dim_names=DIMENSIONS[framework])


def on_hosts(
    train: Callable[[Injection, Path, int], None],
) -> Callable[[Injection, Path, int], None]:
    """Return a training that starts when the links of the hosts are as its cell needs them."""

    def train_on_links(injection: Injection, log_dir: Path, steps: int) -> None:
        if torch.distributed.get_rank() == 0:
            await_links(Path(sys.argv[2]), injection.cell)
        torch.distributed.barrier()
        train(injection, log_dir, steps)

    return train_on_links


TRAININGS = {
    "ddp": ddp,
    "fsdp": fsdp,
    "hybrid": hybrid,
    "tensor": tensor,
    "pipeline": pipeline,
    "zero_3": zero_3,
    "experts": experts,
    "ddp_4_hosts": on_hosts(ddp),
    **dict.fromkeys(("fsdp_2_hosts", "fsdp_4_hosts"), on_hosts(fsdp)),
    "hybrid_4_hosts": on_hosts(hybrid),
}


if __name__ == "__main__":
    train_launch(TRAININGS, WARM_UP)
