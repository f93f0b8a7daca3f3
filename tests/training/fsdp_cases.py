"""Train small models on two ranks with FSDP2, one per case, each with its own log folder.

    python two_ranks.py fsdp_cases.py OUT [CASE …]

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from case_runner import Cases, digest, run_cases
from process_group import end_process_group
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from torch_loops import Case, Loop, SlowData, add_loops, sleep_in_backward, slow_seconds

BATCH = 16
STEPS = 12
WIDTH = 64
#: The recorder describes a step in flight after some seconds.
PATIENCE_SECONDS = 900.0
#: What torch itself has for its operators.
BUILTIN = type(torch.ops._c10d_functional.wait_tensor._op)

CASES = Cases()
case_of = CASES.add


def rank() -> int:
    return int(os.environ["RANK"])


class Block(nn.Module):
    def __init__(self, forward: float, backward: float, again: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.forward_seconds, self.backward_seconds = forward, backward
        self.again = again

    def forward(self, inputs: Any) -> Any:
        if self.again:
            return checkpoint(self._run, inputs, use_reentrant=False)
        return self._run(inputs)

    def _run(self, inputs: Any) -> Any:
        if self.forward_seconds:
            time.sleep(self.forward_seconds)
        return sleep_in_backward(torch.relu(self.layer(inputs)), self.backward_seconds)


class Sharded(Loop):
    """A model with sharded blocks, and its optimizer."""

    def __init__(
        self,
        passes: int = 1,
        slow_input: float = 0.0,
        slow_backward: float = 0.0,
        slow_forward: float = 0.0,
        again: bool = False,
    ) -> None:
        torch.manual_seed(11)
        # The block in the middle is slow: the blocks before and after it wait as well.
        slow = (0.0, 0.0), (slow_forward, slow_backward), (0.0, 0.0)
        net = nn.Sequential(*[Block(*delays, again) for delays in slow], nn.Linear(WIDTH, 4))
        model = self.sharded(net)
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        super().__init__(net, model, optimizer, loader(slow_input, self.data_of()))

    def sharded(self, net: nn.Sequential) -> nn.Module:
        """Let the ranks share the model."""
        for block in net[:3]:
            fully_shard(block)
        return fully_shard(net)

    def data_of(self) -> int:
        """Return which ranks have the same batches: those with the same number."""
        return rank()

    def step(self, batch: Any, updates: bool) -> None:
        inputs, labels = batch
        self.model.set_requires_gradient_sync(updates)
        nn.functional.cross_entropy(self.model(inputs), labels).backward()
        if updates:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def validate(self) -> None:
        with torch.no_grad():
            self.model(torch.rand(1, WIDTH))

    def weights(self) -> str:
        """Return a digest of all ranks' parts."""
        # A forward pass without a backward pass leaves the last layer unsharded.
        self.model.reshard()
        return digest(p.full_tensor().detach().numpy() for p in self.model.parameters())

    def ours(self) -> list[str]:
        """Return what the recorder has left behind in the model, and in torch."""
        return left_in(self.model, self.optimizer)


def left_in(model: nn.Module, optimizer: Any) -> list[str]:
    """Return what a recorder may leave behind."""
    methods = (
        torch.distributed.distributed_c10d.Work.wait,
        torch.distributed.ProcessGroup.allreduce,
    )
    left = [method.__name__ for method in methods if hasattr(method, "__wrapped__")]
    operators = torch.ops._c10d_functional
    packets = operators.wait_tensor, operators.all_reduce
    left += [str(packet) for packet in packets if not isinstance(packet._op, BUILTIN)]
    left += ["hook" for p in model.parameters() if p._post_accumulate_grad_hooks]
    hooks = model._forward_pre_hooks.values()
    left += ["forward hook" for hook in hooks if type(hook).__name__ == "ForwardHook"]
    return left + ["update hook"] * len(optimizer._optimizer_step_post_hooks)


def loader(seconds: float = 0.0, data_of: int | None = None) -> DataLoader:
    """Return this rank's loader, with a delay for each batch."""
    random = torch.Generator().manual_seed(7 + (rank() if data_of is None else data_of))
    inputs = torch.rand(STEPS * BATCH, WIDTH, generator=random)
    data = TensorDataset(inputs, torch.randint(4, (STEPS * BATCH,), generator=random))
    return DataLoader(SlowData(data, BATCH, seconds), BATCH)


def steps_in_flight(folder: Path) -> int:
    """Return how many ranks' logs describe a step in flight."""
    logs = folder.rglob("*.steps.csv")
    return sum(f'"step":{STEPS},' in log.read_text() for log in logs)


add_loops("fsdp", Sharded, CASES)


@case_of
def recomputed(case: Case) -> Any:
    """Compute activations again in the backward pass."""
    return Sharded(again=True).train(case)


@case_of
def slow_forward(case: Case) -> Any:
    return Sharded(slow_forward=slow_seconds()).train(case, epochs=1)


@case_of
def slow_backward_with_accumulation(case: Case) -> Any:
    return Sharded(slow_backward=slow_seconds()).train(case, passes=2, epochs=1)


@case_of
def without_stages(case: Case) -> Any:
    return Sharded().train(case, stages=False)


class Asynchronous(Sharded):
    """Gathers the next block's parameters while a block computes."""

    def step(self, batch: Any, updates: bool) -> None:
        self.model[0].unshard(async_op=True)
        super().step(batch, updates)


@case_of
def asynchronous(case: Case) -> Any:
    return Asynchronous(slow_forward=slow_seconds()).train(case, epochs=1)


class Stuck(Sharded):
    """Rank 1 starts the forward pass of one step when both logs describe the step."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder, self._iterations = folder, itertools.count()

    def step(self, batch: Any, updates: bool) -> None:
        if next(self._iterations) == STEPS and rank() == 1:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while steps_in_flight(self._folder) < 2 and time.monotonic() < deadline:
                time.sleep(0.1)
        super().step(batch, updates)


@case_of
def stuck(case: Case) -> Any:
    return Stuck(case.folder).train(case)


def main() -> None:
    out, *names = sys.argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    run_cases(CASES, Path(out), names, rank(), Case)
    end_process_group()


if __name__ == "__main__":
    main()
