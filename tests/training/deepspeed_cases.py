"""Train small models on two CPU ranks with DeepSpeed, one per case, each with its own log folder.

    python two_ranks.py deepspeed_cases.py OUT [CASE …]

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(DS_ACCELERATOR="cpu", GLOO_SOCKET_IFNAME="lo")

import deepspeed  # it reads these variables
import torch
from case_runner import Cases, digest, run_cases
from process_group import end_process_group
from slow_torch import SlowData
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stallscope.torch import StepLogger

BATCH, WIDTH, STEPS = 16, 32, 60
#: Much longer than the rest of a step.
SLOW_SECONDS = 0.04

CASES = Cases()
case_of = CASES.add


def rank() -> int:
    return int(os.environ["RANK"])


def loader() -> DataLoader:
    """Return a loader that is slow on rank 1."""
    random = torch.Generator().manual_seed(7 + rank())
    inputs = torch.rand(STEPS * BATCH, WIDTH, generator=random)
    labels = torch.randint(4, (STEPS * BATCH,), generator=random)
    data = SlowData(TensorDataset(inputs, labels), BATCH, rank() * SLOW_SECONDS)
    return DataLoader(data, BATCH)


def hooks_of(model: nn.Module) -> int:
    return sum(len(p._post_accumulate_grad_hooks or ()) for p in model.parameters())


def train(stage: int, passes: int, folder: Path) -> Any:
    """Train with a stage of ZeRO, and update the weights after so many batches."""
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 4))
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": passes,
        # Its own optimizer is compiled.
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
    }
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    # DeepSpeed's own.
    hooks = hooks_of(model)
    with StepLogger(folder / "logs", optimizer=optimizer, model=engine) as log:
        for inputs, labels in log.watch(loader()):
            loss = nn.functional.cross_entropy(engine(inputs), labels)
            engine.backward(loss)
            engine.step()
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        weights = digest(p.detach().numpy() for p in model.parameters())
    return {
        "weights": weights,
        "updates": engine.global_steps,
        "ours": ["hook"] * (hooks_of(model) - hooks),
    }


@case_of
def zero_1(folder: Path) -> Any:
    return train(1, 1, folder)


@case_of
def zero_2(folder: Path) -> Any:
    return train(2, 1, folder)


@case_of
def zero_3(folder: Path) -> Any:
    return train(3, 1, folder)


@case_of
def zero_2_accumulates(folder: Path) -> Any:
    return train(2, 3, folder)


def main() -> None:
    out, *names = sys.argv[1:]
    # Allreduces of small tensors on one host would be compiled; gloo does without.
    deepspeed.ops.__compatible_ops__.clear()
    deepspeed.init_distributed("gloo")
    torch.set_num_threads(1)
    run_cases(CASES, Path(out), names, rank())
    end_process_group()


if __name__ == "__main__":
    main()
