"""Trains small models with Hugging Face's Trainer and Accelerate; each case has its own log folder.

    python hugging_face_cases.py OUT [CASE …]             cases of one process
    python two_ranks.py hugging_face_cases.py OUT [CASE …]
                                                          cases of two ranks with DistributedDataParallel

``OUT/CASE/logs`` holds the logs, ``OUT/CASE/result-RANK.json`` what the training itself saw,
``OUT/CASE/error-RANK.txt`` what a case raised.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from case_runner import Cases, Messages, run_case
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

from stallscope.torch import StepLogger as LoopLogger
from stallscope.transformers import StepLogger

BATCH = 16
STEPS = 12
INPUTS = 8
CLASSES = 4
#: Much longer than what a step takes besides, on a busy machine as well.
SLOW_SECONDS = 0.04
#: Enough for a verdict.
MANY_STEPS = 100
RANKS = int(os.environ.get("WORLD_SIZE", "1"))

CASES, RANKED_CASES = Cases(), Cases()
alone, ranked = CASES.add, RANKED_CASES.add


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


class Data(Dataset):
    """Samples of which rank 1's may be slow, or all of one process."""

    def __init__(self, steps: int = STEPS, seconds: float = 0.0) -> None:
        random = torch.Generator().manual_seed(7)
        self.samples = steps * BATCH * RANKS
        self.inputs = torch.rand(self.samples, INPUTS, generator=random)
        self.labels = torch.randint(CLASSES, (self.samples,), generator=random)
        self.seconds = seconds if rank() == RANKS - 1 else 0.0

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.seconds:
            time.sleep(self.seconds / BATCH)
        return {"inputs": self.inputs[index], "labels": self.labels[index]}


class Slow(torch.autograd.Function):
    """Hands on what comes, and takes its time in the backward pass."""

    @staticmethod
    def forward(context: Any, inputs: Any, seconds: float) -> Any:
        context.seconds = seconds
        return inputs.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        time.sleep(context.seconds)
        return gradient, None


class Net(nn.Module):
    """Takes the number of items of all ranks, as language models do: then the Trainer counts them."""

    accepts_loss_kwargs = True

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.first = nn.Linear(INPUTS, 64)
        self.second = nn.Linear(64, CLASSES)
        self.seconds = seconds if rank() == RANKS - 1 else 0.0

    def forward(self, inputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        hidden = Slow.apply(torch.relu(self.first(inputs)), self.seconds)
        total = nn.functional.cross_entropy(self.second(hidden), labels, reduction="sum")
        return {"loss": total / (num_items_in_batch or len(labels))}


class Case:
    """Where a case writes, and what it builds its training from."""

    def __init__(self, out: Path, name: str) -> None:
        self.folder = out / name
        self.folder.mkdir(parents=True, exist_ok=True)

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
    """The weights, and what of the recorder is left in Trainer and model."""
    names = ("get_batch_samples", "training_step", "evaluate", "_save_checkpoint")
    ours = [name for name in names if name in vars(trainer)]
    ours += ["gather"] * ("gather" in vars(trainer.accelerator))
    ours += left_in(trainer.model_wrapped)
    return {"weights": weights_of(trainer.model), "ours": ours, **more}


def weights_of(model: nn.Module) -> str:
    parameters = [p.detach().numpy().tobytes() for p in model.parameters()]
    return hashlib.sha256(b"".join(parameters)).hexdigest()


def left_in(model: nn.Module) -> list[str]:
    """What of the recorder is left in a model."""
    hooked = [p for p in model.parameters() if p._post_accumulate_grad_hooks]
    return ["hook"] * len(hooked) + ["forward hook"] * bool(model._forward_pre_hooks)


@alone
@ranked
def plain(case: Case) -> Any:
    silent = case.train()["weights"]
    return {**case.train(case.logger(run_name="plain run")), "silent": silent}


@alone
@ranked
def accumulation(case: Case) -> Any:
    """An epoch of 12 batches, 5 of which make a step: the last step of an epoch has two."""
    return case.train(case.logger(), gradient_accumulation_steps=5)


@alone
@ranked
def compiled(case: Case) -> Any:
    return case.train(case.logger(), torch_compile=True, torch_compile_backend="aot_eager")


@ranked
def slow_input(case: Case) -> Any:
    return case.train(case.logger(), data=Data(MANY_STEPS // 2, SLOW_SECONDS))


@ranked
def slow_backward(case: Case) -> Any:
    return case.train(case.logger(), net=Net(SLOW_SECONDS), data=Data(MANY_STEPS // 2))


@ranked
def slow_input_with_accumulation(case: Case) -> Any:
    data = Data(MANY_STEPS, SLOW_SECONDS / 2)
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
    """From the checkpoint in the middle of the first epoch; SGD counts no steps."""
    options = {"save_strategy": "steps", "save_steps": 6}
    case.train(max_steps=6, **options)
    trainer = case.trainer(case.logger(), **options)
    trainer.train(resume_from_checkpoint=str(case.folder / "saved" / "checkpoint-6"))
    return seen(trainer)


@alone
def no_trainer(case: Case) -> Any:
    """A loop of its own calls the callback."""
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


def accelerated(
    case: Case, data: Any = None, net: Any = None, log: Any = None, passes: int = 1
) -> Any:
    """Two epochs in a loop with Accelerate, recorded unless ``log`` is False."""
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
    ours = left_in(model) + ["update hook"] * bool(optimizer.optimizer._optimizer_step_post_hooks)
    return {"weights": weights_of(net), "ours": ours}


@alone
@ranked
def accelerate_loop(case: Case) -> Any:
    silent = accelerated(case, log=False)["weights"]
    return {**accelerated(case), "silent": silent}


@alone
@ranked
def accelerate_accumulates(case: Case) -> Any:
    """Epochs of 12 batches, 5 of which make a step: the last two are one, as Accelerate does it."""
    return accelerated(case, passes=5)


@ranked
def accelerate_slow_input(case: Case) -> Any:
    return accelerated(case, data=Data(MANY_STEPS // 2, SLOW_SECONDS))


@ranked
def accelerate_slow_backward(case: Case) -> Any:
    """Every other batch only accumulates."""
    return accelerated(case, data=Data(MANY_STEPS), net=Net(SLOW_SECONDS / 2), passes=2)


def main() -> None:
    out, *names = sys.argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    messages = Messages.of_the_recorder()
    cases = CASES if RANKS == 1 else RANKED_CASES
    for name in names or cases:
        case = Case(Path(out), name)
        run_case(cases[name], case, case.folder, rank(), messages)


if __name__ == "__main__":
    main()
