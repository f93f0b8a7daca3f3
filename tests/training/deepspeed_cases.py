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


def left_in(engine: Any) -> list[str]:
    """Return what a recorder may leave behind, with DeepSpeed's own hooks on gradients."""
    names = [name for name in ("allreduce_gradients",) if name in vars(engine)]
    names += [name for name in vars(deepspeed.comm.comm.cdb) if name.startswith(("all_", "reduce"))]
    hooks = sum(len(p._post_accumulate_grad_hooks or ()) for p in engine.module.parameters())
    return [*names, *["hook"] * hooks, *["forward hook"] * len(engine._forward_pre_hooks)]


def train(stage: int, passes: int, folder: Path | None, dtype: str = "fp32") -> Any:
    """Train with a stage of ZeRO, and update the weights after so many batches.

    Without a folder nothing is recorded.
    """
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 4))
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": passes,
        # Its own optimizer is compiled.
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "bf16": {"enabled": dtype == "bf16"},
    }
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    before = left_in(engine)
    log = None
    if folder is not None:
        log = StepLogger(folder / "logs", optimizer=optimizer, model=engine)
    for inputs, labels in loader() if log is None else log.watch(loader()):
        outputs = engine(inputs.to(engine.communication_data_type))
        engine.backward(nn.functional.cross_entropy(outputs, labels))
        engine.step()
    if log is not None:
        log.close()
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        weights = digest(p.detach().float().numpy() for p in model.parameters())
    return {
        "weights": weights,
        "updates": engine.global_steps,
        "ours": left_in(engine)[len(before) :],
    }


@case_of
def zero_0(folder: Path) -> Any:
    return train(0, 1, folder)


@case_of
def zero_1(folder: Path) -> Any:
    return {**train(1, 1, folder), "silent": train(1, 1, None)["weights"]}


@case_of
def zero_1_in_16_bits(folder: Path) -> Any:
    return train(1, 1, folder, dtype="bf16")


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
