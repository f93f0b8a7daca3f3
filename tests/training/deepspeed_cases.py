"""Train small models on two CPU ranks with DeepSpeed, one per case, each with its own log folder.

    python two_ranks.py deepspeed_cases.py OUT [CASE …]

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import functools
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
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_loops import Case, Loop, SlowData, add_loops, sleep_in_backward, slow_seconds
from transformers import Trainer, TrainingArguments

from stallscope.transformers import StepLogger as Callback

BATCH, WIDTH, STEPS = 16, 32, 12

CASES = Cases()
case_of = CASES.add


def rank() -> int:
    return int(os.environ["RANK"])


def data(steps: int, seed: int, seconds: float = 0.0) -> SlowData:
    """Return samples for some steps, with a delay for each batch."""
    random = torch.Generator().manual_seed(seed)
    inputs = torch.rand(steps * BATCH, WIDTH, generator=random)
    labels = torch.randint(4, (steps * BATCH,), generator=random)
    return SlowData(TensorDataset(inputs, labels), BATCH, seconds)


class Activation(nn.Module):
    """A layer whose backward pass may be slow."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def forward(self, inputs: Any) -> Any:
        return sleep_in_backward(torch.relu(inputs), self.seconds)


def small_model(seconds: float = 0.0) -> nn.Sequential:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(WIDTH, 64), Activation(seconds), nn.Linear(64, 4))


def left_in(engine: Any) -> list[str]:
    """Return what a recorder may leave behind, with DeepSpeed's own hooks on gradients."""
    names = [name for name in ("step",) if name in vars(engine)]
    names += ["wait"] * hasattr(torch.distributed.distributed_c10d.Work.wait, "__wrapped__")
    hooks = sum(len(p._post_accumulate_grad_hooks or ()) for p in engine.module.parameters())
    return [*names, *["hook"] * hooks, *["forward hook"] * len(engine._forward_pre_hooks)]


class Engine(Loop):
    """A loop with DeepSpeed's engine, which counts its updates and calls its own hooks."""

    def __init__(self, net: Any, engine: Any, optimizer: Any, loader: Any) -> None:
        super().__init__(net, engine, optimizer, loader)
        self._before = left_in(engine)

    def seen(self, **more: Any) -> dict[str, Any]:
        return super().seen(updates=self.model.global_steps, **more)

    def weights(self) -> str:
        return weights_of(self.net)

    def ours(self) -> list[str]:
        return left_in(self.model)[len(self._before) :]


def weights_of(net: nn.Module) -> str:
    with deepspeed.zero.GatheredParameters(list(net.parameters())):
        return digest(p.detach().float().numpy() for p in net.parameters())


class Zero(Engine):
    """A stage of ZeRO."""

    def __init__(
        self,
        stage: int = 2,
        dtype: str = "fp32",
        passes: int = 1,
        slow_input: float = 0.0,
        slow_backward: float = 0.0,
        own_loader: bool = False,
    ) -> None:
        net = small_model(slow_backward)
        config = {
            "train_micro_batch_size_per_gpu": BATCH,
            "gradient_accumulation_steps": passes,
            # Its own optimizer is compiled.
            "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
            "zero_optimization": {"stage": stage},
            "bf16": {"enabled": dtype == "bf16"},
        }
        samples = data(STEPS, 7 + rank(), slow_input)
        # The engine's own loader gives each rank a part of the data.
        given = data(2 * STEPS, 7) if own_loader else None
        engine, optimizer, loader, _ = deepspeed.initialize(
            model=net, model_parameters=net.parameters(), config=config, training_data=given
        )
        super().__init__(net, engine, optimizer, loader or DataLoader(samples, BATCH))

    def step(self, batch: Any, updates: bool) -> None:
        # The engine itself knows when to update.
        inputs, labels = batch
        outputs = self.model(inputs.to(self.model.communication_data_type))
        self.model.backward(nn.functional.cross_entropy(outputs, labels))
        self.model.step()


class BelowAccelerate(Engine):
    """An engine that Accelerate makes."""

    def __init__(
        self, passes: int = 1, slow_input: float = 0.0, slow_backward: float = 0.0
    ) -> None:
        AcceleratorState._reset_state(True)
        # Accelerator(cpu=True) would make no engine.
        PartialState(cpu=True)
        plugin = DeepSpeedPlugin(zero_stage=2, gradient_accumulation_steps=passes)
        self.accelerator = Accelerator(deepspeed_plugin=plugin)
        net = small_model(slow_backward)
        # Accelerate gives each rank its part of the samples.
        loader = DataLoader(data(2 * STEPS, 7, slow_input), BATCH)
        prepared = self.accelerator.prepare(net, torch.optim.Adam(net.parameters(), 0.01), loader)
        super().__init__(net, *prepared)

    def step(self, batch: Any, updates: bool) -> None:
        inputs, labels = batch
        with self.accelerator.accumulate(self.model):
            self.accelerator.backward(nn.functional.cross_entropy(self.model(inputs), labels))
            self.optimizer.step()
            self.optimizer.zero_grad()


add_loops("zero_2", Zero, CASES)
add_loops("below_accelerate", BelowAccelerate, CASES)


@case_of
def zero_0(case: Case) -> Any:
    return Zero(0).train(case)


@case_of
def zero_1(case: Case) -> Any:
    return {**Zero(1).train(case), "silent": Zero(1).train(case, recorded=False)["weights"]}


@case_of
def zero_1_in_16_bits(case: Case) -> Any:
    return Zero(1, "bf16").train(case)


add_loops("zero_3", functools.partial(Zero, 3), CASES)


class Classifier(nn.Module):
    """The small model with the Trainer's inputs, which the ranks count together, and results."""

    accepts_loss_kwargs = True

    def __init__(self) -> None:
        super().__init__()
        self.layers = small_model()

    def forward(self, inputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        total = nn.functional.cross_entropy(self.layers(inputs), labels, reduction="sum")
        return {"loss": total / (num_items_in_batch or len(labels))}


def with_trainer(case: Case, *callbacks: Any, passes: int = 1) -> Any:
    """Train with Hugging Face's Trainer, which makes the engine."""
    AcceleratorState._reset_state(True)
    arguments = TrainingArguments(
        str(case.folder / "saved"),
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=passes,
        num_train_epochs=2,
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
        train_dataset=data(2 * STEPS, 7, slow_seconds()),
        callbacks=list(callbacks),
    )
    trainer.train()
    engine = trainer.model_wrapped
    return {
        "weights": weights_of(model),
        "updates": engine.global_steps,
        "ours": left_in(engine),
    }


def collated(samples: list[Any]) -> dict[str, Any]:
    inputs, labels = map(torch.stack, zip(*samples))
    return {"inputs": inputs, "labels": labels}


def compared(case: Case, passes: int = 1) -> Any:
    """Train with the Trainer, without the recorder and with it."""
    silent = with_trainer(case, passes=passes)
    recorded = with_trainer(case, Callback(case.folder / "logs"), passes=passes)
    left = recorded["ours"][len(silent["ours"]) :]
    return {**recorded, "silent": silent["weights"], "ours": left}


@case_of
def zero_own_loader(case: Case) -> Any:
    silent = Zero(own_loader=True).train(case, recorded=False)["weights"]
    return {**Zero(own_loader=True).train(case), "silent": silent}


@case_of
def below_trainer(case: Case) -> Any:
    return compared(case)


@case_of
def below_trainer_accumulates(case: Case) -> Any:
    return compared(case, passes=3)


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
