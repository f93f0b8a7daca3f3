"""Trains small models with Lightning, one per case, each with a log folder of its own.

    python lightning_cases.py OUT [CASE …]                cases of one process
    python lightning_cases.py --ddp OUT [CASE …]          cases of two, which Lightning starts itself
    LIGHTNING=pytorch_lightning python lightning_cases.py OUT [CASE …]

``OUT/CASE/logs`` holds the logs, ``OUT/CASE/result-RANK.json`` what the training itself saw,
``OUT/CASE/error-RANK.txt`` what a case raised.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from case_runner import Cases, Messages, run_case
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# The library under the one of its two names that is to be trained with, before the recorder asks for it.
pl: Any = importlib.import_module(os.environ.get("LIGHTNING", "lightning.pytorch"))

from stallscope.lightning import StepLogger  # noqa: E402

BATCH = 16
STEPS = 12
INPUTS = 8
CLASSES = 4
#: Much longer than what a step takes besides, on a busy machine as well.
SLOW_SECONDS = 0.12
#: Enough for a verdict.
MANY_STEPS = 40

CASES, DDP_CASES = Cases(), Cases()
alone, ranked = CASES.add, DDP_CASES.add


def rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


class Case:
    """Where a case writes, and what it builds its training from."""

    def __init__(self, out: Path, name: str, ddp: bool) -> None:
        self.folder = out / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ddp = ddp

    def logger(self, **options: Any) -> StepLogger:
        return StepLogger(self.folder / "logs", **options)

    def loader(self, steps: int = STEPS, seconds: float = 0.0) -> Any:
        random = torch.Generator().manual_seed(7)
        samples = steps * BATCH * (2 if self.ddp else 1)
        inputs = torch.rand(samples, INPUTS, generator=random)
        labels = torch.randint(CLASSES, (samples,), generator=random)
        data = SlowData(inputs, labels) if seconds else TensorDataset(inputs, labels)
        if seconds:
            data.seconds = seconds / BATCH
        return DataLoader(data, batch_size=BATCH)

    def trainer(self, *callbacks: Any, **options: Any) -> pl.Trainer:
        distributed = {"strategy": "ddp", "devices": 2} if self.ddp else {"devices": 1}
        return pl.Trainer(
            **{
                "accelerator": "cpu",
                "max_epochs": 2,
                "logger": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
                "enable_checkpointing": False,
                "default_root_dir": self.folder,
                **distributed,
                **options,
            },
            callbacks=list(callbacks),
        )

    def fit(self, *callbacks: Any, net: Any = None, data: Any = None, **options: Any) -> Any:
        net = Net() if net is None else net
        trainer = self.trainer(*callbacks, **options)
        trainer.fit(net, data or self.loader())
        return seen(net, trainer)


class SlowData(TensorDataset):
    seconds = 0.0

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return super().__getitem__(index)


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


class Net(pl.LightningModule):
    def __init__(self, slow_backward: float = 0.0, seconds: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.first = nn.Linear(INPUTS, 64)
        self.second = nn.Linear(64, CLASSES)
        self.slow_backward = slow_backward
        self.seconds = seconds

    def training_step(self, batch: Any, index: int) -> Any:
        inputs, labels = batch
        time.sleep(self.seconds)
        hidden = Slow.apply(torch.relu(self.first(inputs)), self.slow_backward)
        return nn.functional.cross_entropy(self.second(hidden), labels)

    def validation_step(self, batch: Any, index: int) -> None:
        # A validation that takes time, to be found in the log.
        time.sleep(0.001)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class ByHand(Net):
    """Takes the iterator, and steps itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, dataloader_iter: Any) -> None:
        batch, _, _ = next(dataloader_iter)
        self.optimizers().zero_grad()
        self.manual_backward(super().training_step(batch, 0))
        self.optimizers().step()


def seen(net: Any, trainer: Any) -> dict[str, Any]:
    """The weights, and what of the recorder is left in Trainer and module."""
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters()))
    loop = trainer.fit_loop.epoch_loop
    names = ("_on_before_fetch", "_on_after_fetch", "save_checkpoint")
    ours = [name for owner in (trainer, loop) for name in names if name in vars(owner)]
    ours += ["hook" for p in net.parameters() if p._post_accumulate_grad_hooks]
    return {"weights": digest.hexdigest(), "ours": ours}


@alone
@ranked
def plain(case: Case) -> Any:
    silent = case.fit()["weights"]
    return {**case.fit(case.logger(run_name="plain run")), "silent": silent}


@alone
def validation_and_checkpoints(case: Case) -> Any:
    saving = pl.callbacks.ModelCheckpoint(dirpath=case.folder / "saved")
    net = Net()
    trainer = case.trainer(case.logger(), saving, enable_checkpointing=True, val_check_interval=6)
    trainer.fit(net, case.loader(), case.loader(2))
    return seen(net, trainer)


@alone
@ranked
def accumulation(case: Case) -> Any:
    return case.fit(case.logger(), accumulate_grad_batches=3)


@alone
def slow_input(case: Case) -> Any:
    data = case.loader(MANY_STEPS // 2, seconds=SLOW_SECONDS)
    return case.fit(case.logger(), data=data)


@alone
def slow_compute(case: Case) -> Any:
    return case.fit(case.logger(), net=Net(seconds=SLOW_SECONDS), data=case.loader(MANY_STEPS // 2))


@alone
@ranked
def compiled(case: Case) -> Any:
    return case.fit(case.logger(), net=torch.compile(Net(), backend="aot_eager"))


@alone
def by_hand(case: Case) -> Any:
    return case.fit(case.logger(), net=ByHand())


@alone
def last_batch_smaller(case: Case) -> Any:
    data = case.loader(3).dataset[: 2 * BATCH + 8]
    return case.fit(case.logger(), data=DataLoader(TensorDataset(*data), BATCH))


@alone
def without_stages(case: Case) -> Any:
    return case.fit(case.logger(stages=False))


@alone
def raises(case: Case) -> Any:
    class Broken(Net):
        def training_step(self, batch: Any, index: int) -> Any:
            if index == 5:
                raise OSError("the disk is gone")
            return super().training_step(batch, index)

    net, trainer = Broken(), case.trainer(case.logger())
    try:
        trainer.fit(net, case.loader())
    except OSError as error:
        return {**seen(net, trainer), "raised": str(error)}
    raise AssertionError("the training did not raise")


@alone
def two_fits(case: Case) -> Any:
    logger = case.logger()
    case.fit(logger)
    return case.fit(logger)


@alone
def resumed(case: Case) -> Any:
    saved = case.folder / "half.ckpt"
    trainer = case.trainer(max_epochs=1)
    trainer.fit(Net(), case.loader())
    trainer.save_checkpoint(saved)
    net, trainer = Net(), case.trainer(case.logger())
    trainer.fit(net, case.loader(), ckpt_path=saved)
    return seen(net, trainer)


@alone
def recorder_breaks(case: Case) -> Any:
    from stallscope.collector.recorder.lightning import recording

    def broken(_: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    silent, original = case.fit()["weights"], recording.shape_in
    recording.shape_in = broken
    try:
        # Of which every batch is asked.
        batches = DataLoader(list(case.loader()), batch_size=None)
        return {**case.fit(case.logger(), data=batches), "silent": silent}
    finally:
        recording.shape_in = original


@ranked
def slow_backward(case: Case) -> Any:
    slow = SLOW_SECONDS if rank() == 1 else 0.0
    return case.fit(case.logger(), net=Net(slow_backward=slow), data=case.loader(MANY_STEPS // 2))


@ranked
def slow_input_on_one_rank(case: Case) -> Any:
    seconds = SLOW_SECONDS if rank() == 1 else 0.0
    return case.fit(case.logger(), data=case.loader(MANY_STEPS // 2, seconds=seconds))


def main() -> None:
    words = sys.argv[1:]
    ddp = words[0] == "--ddp"
    cases = DDP_CASES if ddp else CASES
    out, *names = words[ddp:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    messages = Messages.of_the_recorder()
    for name in names or cases:
        case = Case(Path(out), name, ddp)
        run_case(cases[name], case, case.folder, rank(), messages)


if __name__ == "__main__":
    main()
