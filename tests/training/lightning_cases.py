"""Train small models with Lightning, one per case, each with its own log folder.

    python lightning_cases.py OUT [CASE …]                cases of one process
    python lightning_cases.py --ddp OUT [CASE …]          cases of two, which Lightning starts itself
    LIGHTNING=pytorch_lightning python lightning_cases.py OUT [CASE …]

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from case_runner import Cases, Stopwatch, digest, raised_by, run_cases
from process_group import end_process_group
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset
from torch_loops import Repeated, SlowData, fake_device, sleep_in_backward

# One of Lightning's two names, imported before the recorder looks for either.
pl: Any = importlib.import_module(os.environ.get("LIGHTNING", "lightning.pytorch"))

from stallscope.lightning import StepLogger  # noqa: E402

BATCH = 16
STEPS = 12
INPUTS = 8
CLASSES = 4
#: Much longer than the rest of a step, on a busy machine as well.
SLOW_SECONDS = 0.12

CASES, DDP_CASES = Cases(), Cases()
alone, ranked = CASES.add, DDP_CASES.add


def rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


class Case:
    """The folder of a case, its data and its Trainers."""

    def __init__(self, folder: Path, ddp: bool) -> None:
        self.folder = folder
        self.ddp = ddp

    def logger(self, **options: Any) -> StepLogger:
        return StepLogger(self.folder / "logs", **options)

    def loader(self, steps: int = STEPS, seconds: float = 0.0) -> Any:
        random = torch.Generator().manual_seed(7)
        samples = steps * BATCH * (2 if self.ddp else 1)
        inputs = torch.rand(samples, INPUTS, generator=random)
        labels = torch.randint(CLASSES, (samples,), generator=random)
        data = SlowData(TensorDataset(inputs, labels), BATCH, seconds)
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

    def slow_seconds(self) -> float:
        """Return the delay of the last rank."""
        return 0.0 if self.ddp and rank() == 0 else SLOW_SECONDS

    def fit(self, *callbacks: Any, net: Any = None, data: Any = None, **options: Any) -> Any:
        net = Net() if net is None else net
        trainer = self.trainer(*callbacks, **options)
        # Without a length, it is unknown whether another batch follows.
        trainer.fit(net, self.loader() if data is None else data)
        return seen(net, trainer)


class Net(pl.LightningModule):
    def __init__(self, backward_seconds: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.first = nn.Linear(INPUTS, 64)
        self.second = nn.Linear(64, CLASSES)
        self.backward_seconds = backward_seconds

    def training_step(self, batch: Any, index: int) -> Any:
        inputs, labels = batch
        hidden = sleep_in_backward(torch.relu(self.first(inputs)), self.backward_seconds)
        return nn.functional.cross_entropy(self.second(hidden), labels)

    def validation_step(self, batch: Any, index: int) -> None:
        # A validation without any time would not be in the log.
        time.sleep(0.001)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class ByHand(Net):
    """A module with manual optimization, which takes the iterator."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, dataloader_iter: Any) -> None:
        batch, _, _ = next(dataloader_iter)
        self.optimizers().zero_grad()
        self.manual_backward(super().training_step(batch, 0))
        self.optimizers().step()


def seen(net: Any, trainer: Any) -> dict[str, Any]:
    """Return the weights, and what the recorder has left behind in Trainer and module."""
    loop = trainer.fit_loop.epoch_loop
    names = ("_on_before_fetch", "_on_after_fetch", "save_checkpoint")
    ours = [name for owner in (trainer, loop) for name in names if name in vars(owner)]
    ours += ["_prepare_dataloader"] * ("_prepare_dataloader" in vars(trainer._data_connector))
    ours += ["_get_iterator"] * ("_get_iterator" in vars(trainer.train_dataloader))
    ours += ["hook" for p in net.parameters() if p._post_accumulate_grad_hooks]
    return {"weights": digest(p.detach().numpy() for p in net.parameters()), "ours": ours}


@alone
@ranked
def plain(case: Case) -> Any:
    class Timed(Net):
        def training_step(self, batch: Any, index: int) -> Any:
            stopwatch.read()
            return super().training_step(batch, index)

    silent, stopwatch = case.fit()["weights"], Stopwatch()
    recorded = case.fit(case.logger(run_name="plain run"), net=Timed())
    return {**recorded, "silent": silent, "stopwatch": stopwatch.times}


@alone
@ranked
def probed(case: Case) -> Any:
    silent = case.fit()["weights"]
    return {**case.fit(case.logger(probe_input=6, probe_every=12)), "silent": silent}


@alone
@ranked
def workers(case: Case) -> Any:
    """Make batches in workers: the recorder follows them in each epoch."""
    loader = functools.partial(DataLoader, case.loader().dataset, BATCH, num_workers=2)
    silent = case.fit(data=loader())["weights"]
    results = case.fit(case.logger(), data=loader(), reload_dataloaders_every_n_epochs=2)
    return {**results, "silent": silent}


class Rows(IterableDataset):
    """Samples from one worker, whose number is unknown."""

    def __iter__(self) -> Any:
        generator = torch.Generator().manual_seed(5)
        for _ in range(STEPS * BATCH):
            label = torch.randint(CLASSES, (), generator=generator)
            yield torch.rand(INPUTS, generator=generator), label


@alone
def workers_of_a_stream(case: Case) -> Any:
    loader = functools.partial(DataLoader, Rows(), BATCH, num_workers=1, persistent_workers=True)
    silent = case.fit(data=loader())["weights"]
    return {**case.fit(case.logger(), data=loader()), "silent": silent}


@alone
@ranked
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
@ranked
def repeats(case: Case) -> Any:
    class Averaging(Net):
        def training_step(self, batch: Any, index: int) -> Any:
            inputs, labels = batch
            return super().training_step((inputs.mean(1), labels), index)

    return case.fit(case.logger(), net=Averaging(), data=Repeated(case.loader()))


class Reader(Net):
    """A model of token ids, which counts the tokens and the padding of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, INPUTS)
        self.counted: list[list[int]] = []

    def training_step(self, batch: Any, index: int) -> Any:
        ids, mask, labels = batch.values()
        tokens = int(mask.sum())
        self.counted.append([tokens, mask.numel() - tokens])
        hidden = (self.embedding(ids) * mask[..., None]).sum(1)
        return super().training_step((hidden, labels), index)


def padded_to_longest(lengths: Any) -> Any:
    """Make texts of these lengths, padded to the longest of them."""
    places = torch.arange(max(lengths))
    mask = (places < torch.tensor(lengths)[:, None]).long()
    labels = torch.tensor(lengths) % CLASSES
    return {"input_ids": mask * (1 + places), "attention_mask": mask, "labels": labels}


@alone
@ranked
def padded(case: Case) -> Any:
    random = torch.Generator().manual_seed(7)
    lengths = torch.randint(4, 64, (STEPS * BATCH * (2 if case.ddp else 1),), generator=random)
    net = Reader()
    loader = DataLoader(lengths.tolist(), BATCH, collate_fn=padded_to_longest)
    return {**case.fit(case.logger(), net=net, data=loader), "counted": net.counted}


@alone
@ranked
def slow_input(case: Case) -> Any:
    return case.fit(case.logger(), data=case.loader(seconds=case.slow_seconds()), max_epochs=1)


@alone
def copies(case: Case) -> Any:
    """Train on a pretended device, to which each copy of a batch takes a while."""
    hooks = importlib.import_module(f"{pl.__name__}.core.hooks")
    copy = hooks.move_data_to_device

    def slow_copy(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.005)
        return copy(*args, **kwargs)

    hooks.move_data_to_device = slow_copy
    try:
        with fake_device(lag_ns=1_000_000):
            trained = case.fit(case.logger())
        return {**trained, "restored": hooks.move_data_to_device is slow_copy}
    finally:
        hooks.move_data_to_device = copy


@alone
@ranked
def slow_compute(case: Case) -> Any:
    return case.fit(case.logger(), net=Net(case.slow_seconds()), max_epochs=1)


@alone
@ranked
def compiled(case: Case) -> Any:
    return case.fit(case.logger(), net=torch.compile(Net(), backend="aot_eager"))


@alone
def by_hand(case: Case) -> Any:
    return case.fit(case.logger(), net=ByHand())


@alone
def last_batch_smaller(case: Case) -> Any:
    data = Subset(case.loader(3).dataset, range(2 * BATCH + 8))
    return case.fit(case.logger(), data=DataLoader(data, BATCH))


@alone
def without_stages(case: Case) -> Any:
    return case.fit(case.logger(stages=False))


@alone
@ranked
def raises(case: Case) -> Any:
    class Broken(Net):
        def training_step(self, batch: Any, index: int) -> Any:
            if index == 5:
                raise OSError("the disk is gone")
            return super().training_step(batch, index)

    net, trainer = Broken(), case.trainer(case.logger())
    raised = raised_by(lambda: trainer.fit(net, case.loader()))
    return {**seen(net, trainer), "raised": raised}


@alone
@ranked
def two_fits(case: Case) -> Any:
    logger = case.logger()
    case.fit(logger)
    return case.fit(logger)


@alone
@ranked
def resumed(case: Case) -> Any:
    saved = case.folder / "half.ckpt"
    trainer = case.trainer(max_epochs=1)
    trainer.fit(Net(), case.loader())
    trainer.save_checkpoint(saved)
    net, trainer = Net(), case.trainer(case.logger())
    trainer.fit(net, case.loader(), ckpt_path=saved)
    return seen(net, trainer)


@alone
@ranked
def recorder_breaks(case: Case) -> Any:
    from stallscope.collector.recorder.pytorch import lightning_callback

    def broken(_: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    # Without a batch size, the recorder calls ``shape_in`` for each batch.
    batches = DataLoader(list(case.loader()), batch_size=None)
    silent, original = case.fit(data=batches)["weights"], lightning_callback.shape_in
    lightning_callback.shape_in = broken
    try:
        return {**case.fit(case.logger(), data=batches), "silent": silent}
    finally:
        lightning_callback.shape_in = original


def main() -> None:
    words = sys.argv[1:]
    ddp = words[0] == "--ddp"
    out, *names = words[ddp:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    logging.getLogger(pl.__name__).setLevel(logging.ERROR)
    cases = DDP_CASES if ddp else CASES
    run_cases(cases, Path(out), names, rank(), functools.partial(Case, ddp=ddp))
    end_process_group()


if __name__ == "__main__":
    main()
