"""Train DeepSpeed's pipelines on four CPU ranks, one per case, each with its own log folder.

    RANKS=4 python two_ranks.py deepspeed_pipeline_cases.py OUT [CASE …]

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.update(DS_ACCELERATOR="cpu", GLOO_SOCKET_IFNAME="lo")

import deepspeed  # it reads these variables
import torch
from case_runner import Cases, digest, run_cases
from deepspeed.pipe import PipelineModule
from fsdp_cases import BATCH, STEPS, WIDTH, Block, loader, rank
from process_group import end_process_group
from sharded_cases import MICRO_BATCHES, MUCH_LONGER, SLOW_RANK, USUAL_SECONDS, many, seconds
from torch import nn
from torch_loops import Case, Loop, add_loops

from stallscope.torch import StepLogger

#: How long the slow rank's data takes for each micro-batch.
FETCH_SECONDS = 0.01

CASES = Cases()
case_of = CASES.add
#: The engine's methods that the recorder replaces.
_METHODS = ("train_batch", "_next_batch", "step")


class Pipeline(Loop):
    """Two replicas of a pipeline with two stages; the engine trains a batch in micro-batches."""

    def __init__(
        self,
        passes: int = 1,
        slow_input: float = 0.0,
        slow_backward: float = 0.0,
        slow_forward: float = 0.0,
    ) -> None:
        torch.manual_seed(11)
        blocks = [Block(slow_forward, slow_backward, again=False) for _ in range(2)]
        layers = [blocks[0], nn.Linear(WIDTH, WIDTH), blocks[1], nn.Linear(WIDTH, 4)]
        loss = nn.functional.cross_entropy
        net = PipelineModule(layers, num_stages=2, loss_fn=loss, partition_method="uniform")
        config = {
            "train_micro_batch_size_per_gpu": BATCH // MICRO_BATCHES,
            "gradient_accumulation_steps": MICRO_BATCHES,
            # Its own optimizer is compiled.
            "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
            "steps_per_print": 1_000_000,
        }
        engine, optimizer, _, _ = deepspeed.initialize(
            model=net, model_parameters=[*net.parameters()], config=config
        )
        self.forward_hooks = len(engine._forward_pre_hooks)
        super().__init__(net, engine, optimizer, loader(slow_input, rank() % 2))

    def step(self, batch: Any, updates: bool) -> None:
        parts = [part.chunk(MICRO_BATCHES) for part in batch]
        self.model.train_batch(data_iter=zip(*parts))

    def seen(self, **more: Any) -> dict[str, Any]:
        return super().seen(updates=self.model.global_steps, **more)

    def weights(self) -> str:
        return digest(p.detach().numpy() for p in self.net.parameters())

    def ours(self) -> list[str]:
        names = [name for name in _METHODS if name in vars(self.model)]
        names += ["wait"] * hasattr(torch.distributed.distributed_c10d.Work.wait, "__wrapped__")
        hooks = len(self.model._forward_pre_hooks) - self.forward_hooks
        return names + ["forward hook"] * hooks


add_loops("stages", Pipeline, CASES)
# Each call of the engine's method is a step: loops accumulate nothing.
del CASES["stages_accumulates"]


@case_of
def stages_slow(case: Case) -> Any:
    return many(Pipeline(slow_forward=seconds(slow=True) / MICRO_BATCHES), case)


@case_of
def stages_uneven(case: Case) -> Any:
    """The second stage works longer, on both of its ranks."""
    factor = MUCH_LONGER if rank() >= 2 else 1
    return many(Pipeline(slow_forward=factor * USUAL_SECONDS / MICRO_BATCHES), case)


def micro_batches() -> Iterator[Any]:
    """Yield micro-batches without end, slowly on one rank."""
    batches = itertools.cycle(loader(data_of=rank() % 2))
    for inputs, labels in batches:
        for part in zip(inputs.chunk(MICRO_BATCHES), labels.chunk(MICRO_BATCHES)):
            if rank() == SLOW_RANK:
                time.sleep(FETCH_SECONDS)
            yield part


@case_of
def stages_fetch(case: Case) -> Any:
    """The engine fetches its micro-batches itself, as its documentation has it."""
    training, data = Pipeline(), micro_batches()
    log = StepLogger(
        case.folder / "logs",
        optimizer=training.optimizer,
        model=training.model,
        batch_size=training.model.train_batch_size() // training.model.world_size,
    )
    with log:
        for _ in range(2):
            for _ in log.watch(range(STEPS)):
                training.model.train_batch(data_iter=data)
    return training.seen()


def main() -> None:
    out, *names = sys.argv[1:]
    # Allreduces of small tensors on one host would be compiled; gloo does without.
    deepspeed.ops.__compatible_ops__.clear()
    deepspeed.init_distributed("gloo")
    torch.set_num_threads(1)
    run_cases(CASES, Path(out), names, rank(), Case)
    end_process_group()


if __name__ == "__main__":
    main()
