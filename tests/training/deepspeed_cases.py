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
from accelerate import Accelerator, DeepSpeedPlugin, PartialState
from accelerate.state import AcceleratorState
from case_runner import Cases, digest, run_cases
from process_group import end_process_group
from slow_torch import SlowData
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer, TrainingArguments

from stallscope.torch import StepLogger
from stallscope.transformers import StepLogger as Callback

BATCH, WIDTH, STEPS = 16, 32, 60
#: Much longer than the rest of a step.
SLOW_SECONDS = 0.04

CASES = Cases()
case_of = CASES.add


def rank() -> int:
    return int(os.environ["RANK"])


def loader() -> DataLoader:
    """Return a loader that is slow on rank 1."""
    return DataLoader(data(STEPS, 7 + rank()), BATCH)


def data(steps: int, seed: int) -> SlowData:
    """Return samples for some steps, for which rank 1 waits."""
    random = torch.Generator().manual_seed(seed)
    inputs = torch.rand(steps * BATCH, WIDTH, generator=random)
    labels = torch.randint(4, (steps * BATCH,), generator=random)
    return SlowData(TensorDataset(inputs, labels), BATCH, rank() * SLOW_SECONDS)


def small_model() -> nn.Sequential:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 4))


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
    model = small_model()
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
    return seen(model, engine, before)


def seen(model: nn.Module, engine: Any, before: list[str]) -> dict[str, Any]:
    """Return the weights, the engine's updates, and what the recorder has left in the engine."""
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


def accelerated(folder: Path | None, passes: int = 1) -> Any:
    """Train in a loop with Accelerate, which makes the engine; without a folder nothing is recorded."""
    AcceleratorState._reset_state(True)
    # Accelerator(cpu=True) would make no engine.
    PartialState(cpu=True)
    plugin = DeepSpeedPlugin(zero_stage=2, gradient_accumulation_steps=passes)
    accelerator = Accelerator(deepspeed_plugin=plugin)
    model = small_model()
    # Accelerate gives each rank its part of the samples.
    engine, optimizer, batches = accelerator.prepare(
        model, torch.optim.Adam(model.parameters(), 0.01), DataLoader(data(2 * STEPS, 7), BATCH)
    )
    before = left_in(engine)
    log = None
    if folder is not None:
        log = StepLogger(folder / "logs", optimizer=optimizer, model=engine)
    for inputs, labels in batches if log is None else log.watch(batches):
        with accelerator.accumulate(engine):
            accelerator.backward(nn.functional.cross_entropy(engine(inputs), labels))
            optimizer.step()
            optimizer.zero_grad()
    if log is not None:
        log.close()
    return seen(model, engine, before)


@case_of
def below_accelerate(folder: Path) -> Any:
    return {**accelerated(folder), "silent": accelerated(None)["weights"]}


@case_of
def below_accelerate_accumulates(folder: Path) -> Any:
    return accelerated(folder, passes=3)


class Classifier(nn.Module):
    """The small model with the Trainer's inputs, which the ranks count together, and results."""

    accepts_loss_kwargs = True

    def __init__(self) -> None:
        super().__init__()
        self.layers = small_model()

    def forward(self, inputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        total = nn.functional.cross_entropy(self.layers(inputs), labels, reduction="sum")
        return {"loss": total / (num_items_in_batch or len(labels))}


def with_trainer(folder: Path, *callbacks: Any, passes: int = 1) -> Any:
    """Train with Hugging Face's Trainer, which makes the engine."""
    AcceleratorState._reset_state(True)
    arguments = TrainingArguments(
        str(folder / "saved"),
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=passes,
        num_train_epochs=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        deepspeed={
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "zero_optimization": {"stage": 2},
        },
    )
    model = Classifier()
    trainer = Trainer(
        model,
        arguments,
        data_collator=collated,
        train_dataset=data(2 * STEPS, 7),
        callbacks=list(callbacks),
    )
    trainer.train()
    return seen(model, trainer.model_wrapped, [])


def collated(samples: list[Any]) -> dict[str, Any]:
    inputs, labels = map(torch.stack, zip(*samples))
    return {"inputs": inputs, "labels": labels}


def compared(folder: Path, passes: int = 1) -> Any:
    """Train with the Trainer, without the recorder and with it."""
    silent = with_trainer(folder, passes=passes)
    recorded = with_trainer(folder, Callback(folder / "logs"), passes=passes)
    left = recorded["ours"][len(silent["ours"]) :]
    return {**recorded, "silent": silent["weights"], "ours": left}


@case_of
def below_trainer(folder: Path) -> Any:
    return compared(folder)


@case_of
def below_trainer_accumulates(folder: Path) -> Any:
    return compared(folder, passes=3)


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
