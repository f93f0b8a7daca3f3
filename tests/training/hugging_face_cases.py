"""Train small models with Hugging Face's Trainer, Accelerate and Lightning Fabric.

Each case has its own log folder.

    python hugging_face_cases.py OUT [CASE …]                   cases of one process
    python two_ranks.py hugging_face_cases.py OUT [CASE …]      cases of two ranks with DDP

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from case_runner import Cases, digest, run_cases
from lightning.fabric import Fabric
from process_group import end_process_group
from slow_torch import SlowData, sleep_in_backward
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

from stallscope.torch import StepLogger as LoopLogger
from stallscope.transformers import StepLogger

BATCH = 16
STEPS = 12
INPUTS = 8
CLASSES = 4
#: Much longer than the rest of a step, on a busy machine as well.
SLOW_SECONDS = 0.04
#: Enough for a verdict.
MANY_STEPS = 100
RANKS = int(os.environ.get("WORLD_SIZE", "1"))

CASES, RANKED_CASES = Cases(), Cases()
alone, ranked = CASES.add, RANKED_CASES.add


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


class Data(Dataset):
    """Samples for all ranks."""

    def __init__(self, steps: int = STEPS) -> None:
        random = torch.Generator().manual_seed(7)
        self.samples = steps * BATCH * RANKS
        self.inputs = torch.rand(self.samples, INPUTS, generator=random)
        self.labels = torch.randint(CLASSES, (self.samples,), generator=random)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"inputs": self.inputs[index], "labels": self.labels[index]}


def slow_data(steps: int, seconds: float) -> SlowData:
    """Return samples with a delay for each batch of rank 1."""
    return SlowData(Data(steps), BATCH, rank() * seconds)


class Net(nn.Module):
    """A model that takes the number of items of all ranks, so that the Trainer counts them.

    Its backward pass may be slow on rank 1.
    """

    accepts_loss_kwargs = True

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.first = nn.Linear(INPUTS, 64)
        self.second = nn.Linear(64, CLASSES)
        self.seconds = rank() * seconds

    def forward(self, inputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        hidden = sleep_in_backward(torch.relu(self.first(inputs)), self.seconds)
        total = nn.functional.cross_entropy(self.second(hidden), labels, reduction="sum")
        return {"loss": total / (num_items_in_batch or len(labels))}


class Case:
    """The folder of a case, and its Trainers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def logger(self, **options: Any) -> StepLogger:
        return StepLogger(self.folder / "logs", **options)

    def trainer(
        self, *callbacks: Any, net: Any = None, data: Any = None, **options: Any
    ) -> Trainer:
        arguments = TrainingArguments(
            **{
                "output_dir": str(self.folder / "saved"),
                "use_cpu": True,
                "per_device_train_batch_size": BATCH,
                "num_train_epochs": 2.0,
                "save_strategy": "no",
                "report_to": [],
                "disable_tqdm": True,
                "ddp_backend": "gloo" if RANKS > 1 else None,
                "optim": "sgd",
                "remove_unused_columns": False,
                "dataloader_pin_memory": False,
                **options,
            }
        )
        return Trainer(
            net or Net(),
            arguments,
            train_dataset=data or Data(),
            eval_dataset=Data(2),
            callbacks=list(callbacks),
        )

    def train(self, *callbacks: Any, **options: Any) -> Any:
        trainer = self.trainer(*callbacks, **options)
        trainer.train()
        return seen(trainer)


def seen(trainer: Trainer, **more: Any) -> dict[str, Any]:
    """Return the weights, and what the recorder has left behind in Trainer and model."""
    names = ("get_batch_samples", "training_step", "evaluate", "_save_checkpoint")
    ours = [name for name in names if name in vars(trainer)]
    ours += ["gather"] * ("gather" in vars(trainer.accelerator))
    ours += left_in(trainer.model_wrapped)
    return {"weights": weights_of(trainer.model), "ours": ours, **more}


def weights_of(model: nn.Module) -> str:
    return digest(p.detach().numpy() for p in model.parameters())


def left_in(model: nn.Module) -> list[str]:
    """Return what the recorder has left behind in a model."""
    hooked = [p for p in model.parameters() if p._post_accumulate_grad_hooks]
    forward = [module for module in model.modules() if module._forward_pre_hooks]
    return ["hook"] * len(hooked) + ["forward hook"] * len(forward)


@alone
@ranked
def plain(case: Case) -> Any:
    silent = case.train()["weights"]
    return {**case.train(case.logger(run_name="plain run")), "silent": silent}


@alone
@ranked
def accumulation(case: Case) -> Any:
    """An epoch has 12 batches, and a step 5: the last step of an epoch has two."""
    return case.train(case.logger(), gradient_accumulation_steps=5)


@alone
@ranked
def compiled(case: Case) -> Any:
    return case.train(case.logger(), torch_compile=True, torch_compile_backend="aot_eager")


@ranked
def slow_input(case: Case) -> Any:
    return case.train(case.logger(), data=slow_data(MANY_STEPS // 2, SLOW_SECONDS))


@ranked
def slow_backward(case: Case) -> Any:
    return case.train(case.logger(), net=Net(SLOW_SECONDS), data=Data(MANY_STEPS // 2))


@ranked
def slow_input_with_accumulation(case: Case) -> Any:
    data = slow_data(MANY_STEPS, SLOW_SECONDS / 2)
    return case.train(case.logger(), data=data, gradient_accumulation_steps=2)


@alone
def evaluation_and_checkpoints(case: Case) -> Any:
    often = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 6, "save_steps": 6}
    return case.train(case.logger(), **often)


@alone
def without_stages(case: Case) -> Any:
    return case.train(case.logger(stages=False), gradient_accumulation_steps=3)


@alone
def raises(case: Case) -> Any:
    class Broken(Net):
        calls = 0

        def forward(self, *inputs: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == 6:
                raise OSError("the disk is gone")
            return super().forward(*inputs, **named)

    trainer = case.trainer(case.logger(), net=Broken())
    try:
        trainer.train()
    except OSError as error:
        return seen(trainer, raised=str(error))
    raise AssertionError("the training did not raise")


@alone
def resumed(case: Case) -> Any:
    """Continue from the checkpoint in the middle of the first epoch; SGD counts no steps."""
    options = {"save_strategy": "steps", "save_steps": 6}
    case.train(max_steps=6, **options)
    trainer = case.trainer(case.logger(), **options)
    trainer.train(resume_from_checkpoint=str(case.folder / "saved" / "checkpoint-6"))
    return seen(trainer)


@alone
def no_trainer(case: Case) -> Any:
    """Call the callback in a custom loop."""
    logger = case.logger()
    logger.on_train_begin(None, None, None)
    logger.on_epoch_begin(None, None, None)
    logger.on_step_end(None, None, None)
    logger.on_epoch_end(None, None, None)
    logger.on_train_end(None, None, None)
    return {"weights": "", "ours": []}


@alone
def recorder_breaks(case: Case) -> Any:
    from stallscope.collector.recorder.pytorch import iterations

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    silent, original = case.train()["weights"], iterations.Iteration
    iterations.Iteration = broken
    try:
        return {**case.train(case.logger()), "silent": silent}
    finally:
        iterations.Iteration = original


def after_loop(net: Any, model: Any, optimizer: Any) -> Any:
    """Return the weights of a loop, and what the recorder has left in its model and optimizer."""
    ours = left_in(model) + ["update hook"] * bool(optimizer.optimizer._optimizer_step_post_hooks)
    return {"weights": weights_of(net), "ours": ours}


def accelerated(
    case: Case, data: Any = None, net: Any = None, log: Any = None, passes: int = 1
) -> Any:
    """Train two epochs in a loop with Accelerate, recorded unless ``log`` is False."""
    AcceleratorState._reset_state()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=passes)
    net = net or Net()
    model, optimizer, loader = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), 0.1), DataLoader(data or Data(), BATCH)
    )
    logger = LoopLogger(case.folder / "logs", optimizer=optimizer, model=model)
    for _ in range(2):
        for batch in loader if log is False else logger.watch(loader):
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    logger.close()
    return after_loop(net, model, optimizer)


@alone
@ranked
def accelerate_loop(case: Case) -> Any:
    silent = accelerated(case, log=False)["weights"]
    return {**accelerated(case), "silent": silent}


@alone
@ranked
def accelerate_accumulates(case: Case) -> Any:
    """An epoch has 12 batches, and a step 5: Accelerate makes a step of the last two."""
    return accelerated(case, passes=5)


@ranked
def accelerate_slow_input(case: Case) -> Any:
    return accelerated(case, data=slow_data(MANY_STEPS // 2, SLOW_SECONDS))


@ranked
def accelerate_slow_backward(case: Case) -> Any:
    """Update the weights after every other batch."""
    return accelerated(case, data=Data(MANY_STEPS), net=Net(SLOW_SECONDS / 2), passes=2)


def with_fabric(case: Case, data: Any = None, log: Any = None, compiles: bool = False) -> Any:
    """Train two epochs in a loop with Fabric, recorded unless ``log`` is False."""
    fabric = Fabric(accelerator="cpu", strategy="ddp" if RANKS > 1 else "auto", devices=RANKS)
    fabric.launch()
    net = Net()
    compiled = torch.compile(net, backend="aot_eager") if compiles else net
    model, optimizer = fabric.setup(compiled, torch.optim.SGD(net.parameters(), 0.1))
    loader = fabric.setup_dataloaders(DataLoader(data or Data(), BATCH))
    logger = LoopLogger(case.folder / "logs", optimizer=optimizer, model=model)
    for _ in range(2):
        for batch in loader if log is False else logger.watch(loader):
            fabric.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
    logger.close()
    return after_loop(net, model, optimizer)


@alone
@ranked
def fabric_loop(case: Case) -> Any:
    silent = with_fabric(case, log=False)["weights"]
    return {**with_fabric(case), "silent": silent}


@ranked
def fabric_compiled(case: Case) -> Any:
    return with_fabric(case, compiles=True)


@ranked
def fabric_slow_input(case: Case) -> Any:
    return with_fabric(case, data=slow_data(MANY_STEPS // 2, SLOW_SECONDS))


def main() -> None:
    out, *names = sys.argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    run_cases(CASES if RANKS == 1 else RANKED_CASES, Path(out), names, rank(), Case)
    end_process_group()


if __name__ == "__main__":
    main()
