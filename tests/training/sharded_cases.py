"""Train small models that four ranks share, one per case, each with its own log folder.

    RANKS=4 python two_ranks.py sharded_cases.py OUT [CASE …]

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from case_runner import Cases, digest, run_cases
from fsdp_cases import WIDTH, Block, Sharded, left_in, loader, rank
from process_group import end_process_group
from torch import nn

# By name, as torchtitan has them.
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.experimental._context_parallel._attention import (
    _cp_options,
    _templated_ring_attention,
    _templated_ring_attention_backward,
)
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch_loops import Case, Loop, add_loops, sleep_in_backward

#: The rank that is slow where a rank is to be named; how long a block takes on all ranks, and how many
#: times as long on that one, which also shows on busy cores.
SLOW_RANK = 2
USUAL_SECONDS = 0.01
SLOWER = 5
#: And how many times as long a stage takes that is to be named: what equal stages would save is compared
#: with the step, which busy cores prolong as well.
MUCH_LONGER = 10
#: Batches of an epoch where a rank is to be named; there are two epochs, or one where times
#: are compared only.
MANY = 40
MICRO_BATCHES = 4
#: The numbers in a token, how long an expert takes for one, forward and backward, and how many times as
#: many tokens as to the others the router sends to the expert of SLOW_RANK, where it is uneven: in each
#: step something up to that.
TOKEN = 8
TOKEN_SECONDS = 2e-4
UNEVEN = 8.0

CASES = Cases()
case_of = CASES.add


def mesh_of(*names: str) -> DeviceMesh:
    """Return the four ranks in one dimension, or in two of two."""
    sizes = (4,) if len(names) == 1 else (2, 2)
    return init_device_mesh("cpu", sizes, mesh_dim_names=names)


class Hybrid(Sharded):
    """HSDP: two replicas, each of which two ranks share."""

    def sharded(self, net: nn.Sequential) -> nn.Module:
        mesh = mesh_of("replicate", "shard")
        for block in net[:3]:
            fully_shard(block, mesh=mesh)
        return fully_shard(net, mesh=mesh)


class Fsdp1(Sharded):
    """FSDP 1."""

    def sharded(self, net: nn.Sequential) -> nn.Module:
        for number in range(3):
            net[number] = FullyShardedDataParallel(net[number], device_id=torch.device("cpu"))
        return FullyShardedDataParallel(net, device_id=torch.device("cpu"))

    def step(self, batch: Any, updates: bool) -> None:
        inputs, labels = batch
        with contextlib.nullcontext() if updates else self.model.no_sync():
            nn.functional.cross_entropy(self.model(inputs), labels).backward()
        if updates:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def weights(self) -> str:
        with FullyShardedDataParallel.summon_full_params(self.model):
            return digest(p.detach().clone().numpy() for p in self.model.parameters())


def in_parallel(net: nn.Sequential, mesh: DeviceMesh) -> nn.Module:
    """Let the ranks of a mesh share every layer but the last one."""
    each = {f"{number}.layer": ColwiseParallel(output_layouts=Replicate()) for number in range(3)}
    return parallelize_module(net, mesh, each)


class TensorParallel(Sharded):
    """Two replicas, in each of which two ranks share every layer."""

    def sharded(self, net: nn.Sequential) -> nn.Module:
        mesh = mesh_of("dp", "tp")
        return fully_shard(in_parallel(net, mesh["tp"]), mesh=mesh["dp"])

    def data_of(self) -> int:
        return rank() // 2


class TensorParallelAlone(Sharded):
    """Four ranks share every layer."""

    def sharded(self, net: nn.Sequential) -> nn.Module:
        return in_parallel(net, mesh_of("tp"))

    def step(self, batch: Any, updates: bool) -> None:
        inputs, labels = batch
        nn.functional.cross_entropy(self.model(inputs), labels).backward()
        if updates:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def validate(self) -> None:
        self.model(torch.ones(1, WIDTH))

    def data_of(self) -> int:
        return 0

    def weights(self) -> str:
        values = [getattr(p, "full_tensor", lambda p=p: p)() for p in self.model.parameters()]
        return digest(value.detach().numpy() for value in values)


class _RingAttention(torch.autograd.Function):
    """Attention to all parts of sequences, which go around the ranks of a group.

    ``context_parallel`` calls the same functions with the attention of GPUs only.
    """

    @staticmethod
    def forward(context: Any, part: Any, group: Any) -> Any:
        attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        results, logarithms, *_ = _templated_ring_attention(
            group, 2, attention, part, part, part, dropout_p=0.0
        )
        context.group = group
        context.save_for_backward(part, results, logarithms)
        return results

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        part, results, logarithms = context.saved_tensors
        gradients = _templated_ring_attention_backward(
            context.group,
            2,
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward,
            grad_out=gradient.contiguous(),
            grad_out_name="grad_out",
            query=part,
            key=part,
            value=part,
            out=results,
            logsumexp=logarithms,
            is_causal=False,
            dropout_p=0.0,
        )
        return sum(gradients[:3]), None


class Attention(nn.Module):
    """Attention to sequences of which this rank has a part."""

    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group

    def forward(self, inputs: Any) -> Any:
        # Two heads, and four tokens of each sequence.
        part = inputs.reshape(len(inputs), 2, 4, -1)
        return inputs + _RingAttention.apply(part, self.group).reshape(inputs.shape)


class ContextParallel(Sharded):
    """Two replicas, in each of which two ranks share every sequence."""

    def sharded(self, net: nn.Sequential) -> nn.Module:
        _cp_options.enable_load_balance = False
        net.insert(2, Attention(mesh_of("dp", "cp").get_group("cp")))
        for block in (net[0], net[1], net[3]):
            fully_shard(block)
        return fully_shard(net)


class Pipeline(Loop):
    """Two replicas of a pipeline with two stages, whose replicas average their gradients."""

    def __init__(
        self,
        passes: int = 1,
        slow_input: float = 0.0,
        slow_backward: float = 0.0,
        slow_forward: float = 0.0,
    ) -> None:
        mesh = mesh_of("pp", "dp")
        index = mesh.get_local_rank("pp")
        torch.manual_seed(11 + index)
        block = Block(slow_forward, slow_backward, again=False)
        net = nn.Sequential(block, nn.Linear(WIDTH, (WIDTH, 4)[index]))
        stage = PipelineStage(net, index, 2, torch.device("cpu"), group=mesh.get_group("pp"))
        loss = nn.functional.cross_entropy
        self.schedule = Schedule1F1B(stage, n_microbatches=MICRO_BATCHES, loss_fn=loss)
        self.is_first, self.replicas = index == 0, mesh.get_group("dp")
        optimizer = torch.optim.Adam(net.parameters(), 0.01)
        super().__init__(net, net, optimizer, loader(slow_input, mesh.get_local_rank("dp")))

    def step(self, batch: Any, updates: bool) -> None:
        inputs, labels = batch
        if self.is_first:
            self.schedule.step(inputs)
        else:
            self.schedule.step(target=labels, losses=[])
        if updates:
            self.update()

    def update(self) -> None:
        for parameter in self.net.parameters():
            torch.distributed.all_reduce(parameter.grad, group=self.replicas)
            parameter.grad /= 2
        self.optimizer.step()
        self.optimizer.zero_grad()

    def ours(self) -> list[str]:
        left = left_in(self.net, self.optimizer)
        return left + ["step"] * hasattr(self.schedule.step, "__wrapped__")


class _Exchange(torch.autograd.Function):
    """An all-to-all without the functional collectives, as in Megatron-LM."""

    @staticmethod
    def forward(context: Any, rows: Any, received: list[int], sent: list[int]) -> Any:
        context.received, context.sent = received, sent
        output = rows.new_empty(sum(received), *rows.shape[1:])
        torch.distributed.all_to_all_single(output, rows.contiguous(), received, sent)
        return output

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return _Exchange.apply(gradient, context.sent, context.received), None, None


class Expert(nn.Module):
    """An expert on each rank, and a router that sends as many tokens to all, or more to one.

    Args:
        uneven: how many times as many tokens the expert of SLOW_RANK gets at most; 0 for as many.
        functional: whether tokens are sent by functional collectives.
    """

    def __init__(self, uneven: float, functional: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(TOKEN, TOKEN)
        self.uneven, self.functional = uneven, functional
        self.random = torch.Generator().manual_seed(rank())
        self.steps = torch.Generator().manual_seed(5)
        self.group = torch.distributed.group.WORLD

    def forward(self, inputs: Any) -> Any:
        tokens = inputs.reshape(-1, TOKEN)
        ranks = self.chosen(len(tokens))
        order = torch.argsort(ranks, stable=True)
        counts = torch.bincount(ranks, minlength=4)
        sent, received = counts.tolist(), self.received(counts)
        routed = self.exchange(tokens[order], received, sent)
        seconds = TOKEN_SECONDS * len(routed) if self.uneven else 0.0
        time.sleep(seconds)
        results = sleep_in_backward(torch.relu(self.layer(routed)), seconds)
        returned = self.exchange(results, sent, received)
        return inputs + returned[torch.argsort(order)].reshape(inputs.shape)

    def chosen(self, tokens: int) -> Any:
        """Return the rank of each token's expert."""
        if not self.uneven:
            return torch.arange(tokens) % 4
        weights = torch.ones(4)
        weights[SLOW_RANK] = 1 + (self.uneven - 1) * float(torch.rand(1, generator=self.steps))
        return torch.multinomial(weights, tokens, replacement=True, generator=self.random)

    def received(self, counts: Any) -> list[int]:
        """Return how many tokens come from each rank."""
        if self.functional:
            counts = all_to_all_single(counts, None, None, self.group)
            return torch.ops._c10d_functional.wait_tensor(counts).tolist()
        received = torch.empty_like(counts)
        torch.distributed.all_to_all_single(received, counts)
        return received.tolist()

    def exchange(self, rows: Any, received: list[int], sent: list[int]) -> Any:
        if self.functional:
            return all_to_all_single_autograd(rows, received, sent, self.group)
        return _Exchange.apply(rows, received, sent)


class Experts(Sharded):
    """Layers that all ranks share, and an expert on each rank."""

    def __init__(self, uneven: float = 0.0, functional: bool = True, **options: Any) -> None:
        self.uneven, self.functional = uneven, functional
        super().__init__(**options)

    def sharded(self, net: nn.Sequential) -> nn.Module:
        net.insert(2, Expert(self.uneven, self.functional))
        for block in (net[0], net[1], net[3]):
            fully_shard(block)
        return fully_shard(net, ignored_params={*net[2].parameters()})

    def weights(self) -> str:
        self.model.reshard()
        values = [p.full_tensor() for p in self.model.parameters() if hasattr(p, "full_tensor")]
        for parameter in self.model[2].parameters():
            of_ranks = [torch.empty_like(parameter) for _ in range(4)]
            torch.distributed.all_gather(of_ranks, parameter.detach())
            values += of_ranks
        return digest(value.detach().numpy() for value in values)


add_loops("experts", Experts, CASES)
add_loops("hybrid", Hybrid, CASES)
add_loops("fsdp_1", Fsdp1, CASES)
add_loops("tensor_parallel", TensorParallel, CASES)
add_loops("pipeline", Pipeline, CASES)


def many(training: Loop, case: Case, epochs: int = 2) -> Any:
    """Train so many steps that a slow rank can be named."""
    training.loader = Longer(training.loader)
    return training.train(case, epochs=epochs)


class Longer:
    """A loader whose epochs have MANY batches."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return MANY

    def __iter__(self) -> Any:
        batches = list(self._loader)
        return iter([batches[number % len(batches)] for number in range(MANY)])


def seconds(slow: bool) -> float:
    """Return how long a block takes on this rank."""
    return USUAL_SECONDS * (SLOWER if slow and rank() == SLOW_RANK else 1)


def add_named(name: str, make: Any) -> None:
    """Add a case in which one rank is slow, and one in which none is."""

    def slow(case: Case) -> Any:
        return many(make(seconds(slow=True)), case)

    def clean(case: Case) -> Any:
        return many(make(seconds(slow=False)), case, epochs=1)

    for function in (slow, clean):
        function.__name__ = f"{name}_{function.__name__}"
        CASES.add(function)


add_named("hybrid", lambda seconds: Hybrid(slow_forward=seconds))
add_named("fsdp_1", lambda seconds: Fsdp1(slow_forward=seconds))
add_named("tensor_parallel", lambda seconds: TensorParallel(slow_forward=seconds))
add_named("context_parallel", lambda seconds: ContextParallel(slow_forward=seconds))
add_named("tensor_parallel_alone", lambda seconds: TensorParallelAlone(slow_forward=seconds))
# A stage runs its block once for each micro-batch.
add_named("pipeline", lambda seconds: Pipeline(slow_forward=seconds / MICRO_BATCHES))


add_named("experts", lambda seconds: Experts(slow_forward=seconds))


@case_of
def experts_uneven(case: Case) -> Any:
    """The router sends more tokens to the expert of SLOW_RANK."""
    return many(Experts(UNEVEN), case)


@case_of
def experts_uneven_by_hand(case: Case) -> Any:
    """The same, with all-to-alls that the training's own functions send."""
    return many(Experts(UNEVEN, functional=False), case)


@case_of
def pipeline_uneven(case: Case) -> Any:
    """The second stage works longer, on both of its ranks."""
    factor = MUCH_LONGER if rank() >= 2 else 1
    return many(Pipeline(slow_forward=factor * USUAL_SECONDS / MICRO_BATCHES), case)


def main() -> None:
    out, *names = sys.argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    run_cases(CASES, Path(out), names, rank(), Case)
    end_process_group()


if __name__ == "__main__":
    main()
