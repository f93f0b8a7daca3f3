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
from slow_torch import SlowData, sleep_in_backward
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from stallscope.torch import StepLogger

BATCH = 16
STEPS = 12
WIDTH = 64
#: The delay of the slow rank, longer than other delays on a busy machine.
SLOW_SECONDS = 0.04
#: Enough for a verdict.
MANY_STEPS = 40
#: The recorder describes a step in flight after some seconds.
PATIENCE_SECONDS = 120.0

CASES = Cases()
case_of = CASES.add


def rank() -> int:
    return int(os.environ["RANK"])


class Block(nn.Module):
    def __init__(self, forward: float, backward: float, again: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.forward_seconds, self.backward_seconds = rank() * forward, rank() * backward
        self.again = again

    def forward(self, inputs: Any) -> Any:
        if self.again:
            return checkpoint(self._run, inputs, use_reentrant=False)
        return self._run(inputs)

    def _run(self, inputs: Any) -> Any:
        if self.forward_seconds:
            time.sleep(self.forward_seconds)
        return sleep_in_backward(torch.relu(self.layer(inputs)), self.backward_seconds)


class Training:
    """A model with sharded blocks, and its optimizer; rank 1 may be slow."""

    def __init__(self, forward: float = 0.0, backward: float = 0.0, again: bool = False) -> None:
        torch.manual_seed(11)
        # The block in the middle is slow: the blocks before and after it wait as well.
        slow = (0.0, 0.0), (forward, backward), (0.0, 0.0)
        self.model = nn.Sequential(*[Block(*delays, again) for delays in slow], nn.Linear(WIDTH, 4))
        for block in self.model[:3]:
            fully_shard(block)
        fully_shard(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.01)

    def backward(self, batch: Any) -> None:
        inputs, labels = batch
        nn.functional.cross_entropy(self.model(inputs), labels).backward()

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.backward(batch)
        self.optimizer.step()

    def recorded(self, folder: Path, step: Any = None, data: Any = None, **options: Any) -> Any:
        with StepLogger(
            folder / "logs", optimizer=self.optimizer, model=self.model, **options
        ) as log:
            for _ in range(2):
                for batch in log.watch(data or loader()):
                    (step or self.step)(batch)
                with log.validation(), torch.no_grad():
                    self.model(torch.rand(1, WIDTH))
        return self.seen()

    def recorded_passes(self, folder: Path, passes: int = 3, **options: Any) -> Any:
        """Record two epochs in which only one of several batches reduces."""
        iterations = itertools.count()

        def step(batch: Any) -> None:
            last = next(iterations) % passes == passes - 1
            self.model.set_requires_gradient_sync(last)
            self.backward(batch)
            if last:
                self.optimizer.step()
                self.optimizer.zero_grad()

        return self.recorded(folder, step, **options)

    def silent(self) -> str:
        for _ in range(2):
            for batch in loader():
                self.step(batch)
            with torch.no_grad():
                self.model(torch.rand(1, WIDTH))
        return self.weights()

    def seen(self) -> dict[str, Any]:
        return {"weights": self.weights(), "ours": self.ours()}

    def weights(self) -> str:
        """Return a digest of all ranks' parts."""
        # A forward pass without a backward pass leaves the last layer unsharded.
        self.model.reshard()
        return digest(p.full_tensor().detach().numpy() for p in self.model.parameters())

    def ours(self) -> list[str]:
        """Return what the recorder has left behind in the model."""
        modules = [module for module in self.model.modules() if isinstance(module, FSDPModule)]
        groups = [
            group for module in modules for group in module._get_fsdp_state()._fsdp_param_groups
        ]
        collectives = [(group._all_gather_comm, group._reduce_scatter_comm) for group in groups]
        left = [
            repr(type(collective))
            for pair in collectives
            for collective in pair
            if "pytorch" in repr(collective)
        ]
        left += ["hook" for p in self.model.parameters() if p._post_accumulate_grad_hooks]
        # FSDP has one hook.
        return left + ["forward hook"] * (len(self.model._forward_pre_hooks) - 1)


def loader(steps: int = STEPS, seconds: float = 0.0) -> DataLoader:
    """Return a loader with a delay for each batch of rank 1."""
    random = torch.Generator().manual_seed(7 + rank())
    inputs = torch.rand(steps * BATCH, WIDTH, generator=random)
    data = TensorDataset(inputs, torch.randint(4, (steps * BATCH,), generator=random))
    return DataLoader(SlowData(data, BATCH, rank() * seconds), BATCH)


def steps_in_flight(folder: Path) -> int:
    """Return how many ranks' logs describe a step in flight."""
    logs = folder.rglob("*.steps.csv")
    return sum(f'"step":{STEPS},' in log.read_text() for log in logs)


@case_of
def plain(folder: Path) -> Any:
    silent = Training().silent()
    return {**Training().recorded(folder), "silent": silent}


@case_of
def recomputed(folder: Path) -> Any:
    """Compute activations again in the backward pass."""
    return Training(again=True).recorded(folder)


@case_of
def accumulation(folder: Path) -> Any:
    return Training().recorded_passes(folder)


@case_of
def without_stages(folder: Path) -> Any:
    return Training().recorded(folder, stages=False)


@case_of
def asynchronous(folder: Path) -> Any:
    """Gather the next block's parameters while a block computes."""
    training = Training()

    def step(batch: Any) -> None:
        training.model[0].unshard(async_op=True)
        training.step(batch)

    return training.recorded(folder, step)


@case_of
def stuck(folder: Path) -> Any:
    """Rank 1 starts the forward pass of one step when both logs describe the step."""
    training, iterations = Training(), itertools.count()

    def step(batch: Any) -> None:
        if next(iterations) == STEPS and rank() == 1:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while steps_in_flight(folder) < 2 and time.monotonic() < deadline:
                time.sleep(0.1)
        training.step(batch)

    return training.recorded(folder, step)


@case_of
def slow_input(folder: Path) -> Any:
    return Training().recorded(folder, data=loader(MANY_STEPS, SLOW_SECONDS))


@case_of
def slow_forward(folder: Path) -> Any:
    return Training(forward=SLOW_SECONDS).recorded(folder, data=loader(MANY_STEPS))


@case_of
def slow_backward_with_accumulation(folder: Path) -> Any:
    training = Training(backward=SLOW_SECONDS / 2)
    return training.recorded_passes(folder, passes=2, data=loader(2 * MANY_STEPS))


def main() -> None:
    out, *names = sys.argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    run_cases(CASES, Path(out), names, rank())
    end_process_group()


if __name__ == "__main__":
    main()
