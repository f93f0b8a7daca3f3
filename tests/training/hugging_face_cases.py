"""Train small models with Hugging Face's Trainer, Accelerate and Lightning Fabric.

Each case has its own log folder.

    python hugging_face_cases.py OUT [CASE …]                   cases of one process
    python two_ranks.py hugging_face_cases.py OUT [CASE …]      cases of two ranks with DDP

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, data_loader
from accelerate.state import AcceleratorState
from case_runner import REPEATED, Cases, Stopwatch, digest, raised_by, run_cases
from lightning.fabric import Fabric, wrappers
from process_group import end_process_group
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import nn
from torch.utils.data import DataLoader
from torch_loops import (
    Case,
    Loop,
    SlowData,
    add_loops,
    broken_recorder,
    fake_device,
    sleep_in_backward,
    slow_seconds,
)
from transformers import (
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

from stallscope.collector.recorder.pytorch.batches import full_batches
from stallscope.transformers import StepLogger

BATCH = 16
STEPS = 12
INPUTS = 8
CLASSES = 4
RANKS = int(os.environ.get("WORLD_SIZE", "1"))

CASES, RANKED_CASES = Cases(), Cases()
alone, ranked = CASES.add, RANKED_CASES.add


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def data(seconds: float = 0.0) -> SlowData:
    """Return samples for all ranks, with a delay for each batch."""
    random = torch.Generator().manual_seed(7)
    samples = STEPS * BATCH * RANKS
    inputs = torch.rand(samples, INPUTS, generator=random)
    labels = torch.randint(CLASSES, (samples,), generator=random)
    rows = [{"inputs": row, "labels": label} for row, label in zip(inputs, labels)]
    return SlowData(rows, BATCH, seconds)


class Net(nn.Module):
    """A model that takes the number of items of all ranks, so that the Trainer counts them.

    Its backward pass may be slow, and it may raise.
    """

    accepts_loss_kwargs = True

    def __init__(self, seconds: float = 0.0, fail_at: int = -1) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.first = nn.Linear(INPUTS, 64)
        self.second = nn.Linear(64, CLASSES)
        self.seconds = seconds
        self.fail_at = fail_at
        self.stopwatch = Stopwatch()

    def forward(self, inputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        if len(self.stopwatch.times) == self.fail_at:
            raise OSError("the disk is gone")
        self.stopwatch.read()
        hidden = sleep_in_backward(torch.relu(self.first(inputs)), self.seconds)
        total = nn.functional.cross_entropy(self.second(hidden), labels, reduction="sum")
        return {"loss": total / (num_items_in_batch or len(labels))}


class TrainerCase(Case):
    """The folder of a case, and its Trainers."""

    def logger(self, **options: Any) -> StepLogger:
        return StepLogger(self.folder / "logs", **options)

    def trainer(
        self,
        *callbacks: Any,
        net: Any = None,
        dataset: Any = None,
        collate: Any = None,
        **options: Any,
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
            data_collator=collate,
            train_dataset=dataset or data(),
            eval_dataset=data(),
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
    net = trainer.model
    return {"weights": weights_of(net), "ours": ours, "stopwatch": net.stopwatch.times, **more}


def weights_of(model: nn.Module) -> str:
    return digest(p.detach().numpy() for p in model.parameters())


def left_in(model: nn.Module) -> list[str]:
    """Return what the recorder has left behind in a model."""
    hooked = [p for p in model.parameters() if p._post_accumulate_grad_hooks]
    forward = [module for module in model.modules() if module._forward_pre_hooks]
    return ["hook"] * len(hooked) + ["forward hook"] * len(forward)


@alone
@ranked
def plain(case: TrainerCase) -> Any:
    silent = case.train()["weights"]
    return {**case.train(case.logger(run_name="plain run")), "silent": silent}


@alone
@ranked
def probed(case: TrainerCase) -> Any:
    silent = case.train()["weights"]
    return {**case.train(case.logger(probe_input=6, probe_every=12)), "silent": silent}


@alone
@ranked
def workers(case: TrainerCase) -> Any:
    """Make batches in workers: the recorder follows them in each epoch."""
    silent = case.train(dataloader_num_workers=2)["weights"]
    return {**case.train(case.logger(), dataloader_num_workers=2), "silent": silent}


@alone
@ranked
def accumulation(case: TrainerCase) -> Any:
    """An epoch has 12 batches, and a step 5: the last step of an epoch has two."""
    return case.train(case.logger(), gradient_accumulation_steps=5)


class Averaging(Net):
    def forward(self, inputs: Any, **more: Any) -> Any:
        return super().forward(inputs.mean(1), **more)


@alone
@ranked
def repeats(case: TrainerCase) -> Any:
    """An epoch has 12 batches, and a step 5: the last step of an epoch has two."""
    repeated = itertools.cycle(REPEATED)

    def collate(rows: Any) -> Any:
        batch = default_data_collator(rows)
        inputs = batch["inputs"][:, None].expand(-1, next(repeated), -1)
        return {"inputs": inputs, "labels": batch["labels"]}

    return case.train(
        case.logger(), net=Averaging(), collate=collate, gradient_accumulation_steps=5
    )


class Reader(nn.Module):
    """A model of token ids, which counts the tokens and the padding of its batches."""

    accepts_loss_kwargs = True

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.embedding = nn.Embedding(100, 16)
        self.second = nn.Linear(16, CLASSES)
        self.stopwatch = Stopwatch()
        self.counted: list[list[int]] = []

    def forward(
        self, input_ids: Any, attention_mask: Any, labels: Any, num_items_in_batch: Any = None
    ) -> Any:
        tokens = int(attention_mask.sum())
        self.counted.append([tokens, attention_mask.numel() - tokens])
        hidden = (self.embedding(input_ids) * attention_mask[..., None]).sum(1)
        total = nn.functional.cross_entropy(self.second(hidden), labels, reduction="sum")
        return {"loss": total / (num_items_in_batch or len(labels))}


def padded_to_longest(rows: Any) -> dict[str, Any]:
    ids = [row["input_ids"] for row in rows]
    masks = [torch.ones_like(sample) for sample in ids]
    pad = functools.partial(nn.utils.rnn.pad_sequence, batch_first=True)
    labels = torch.stack([row["labels"] for row in rows])
    return {"input_ids": pad(ids), "attention_mask": pad(masks), "labels": labels}


def texts() -> list[dict[str, Any]]:
    """Return texts of different lengths, which each batch pads to its longest."""
    random = torch.Generator().manual_seed(7)
    lengths = torch.randint(4, 64, (STEPS * BATCH * RANKS,), generator=random).tolist()
    return [
        {
            "input_ids": torch.randint(1, 100, (length,), generator=random),
            "labels": torch.tensor(length % CLASSES),
        }
        for length in lengths
    ]


def read_texts(case: TrainerCase, **options: Any) -> Any:
    net = Reader()
    options = {"collate": padded_to_longest, **options}
    trained = case.train(case.logger(), net=net, dataset=texts(), **options)
    return {**trained, "counted": net.counted}


@alone
@ranked
def padded(case: TrainerCase) -> Any:
    return read_texts(case)


@alone
@ranked
def padded_in_workers(case: TrainerCase) -> Any:
    return read_texts(case, dataloader_num_workers=2)


@alone
@ranked
def batches_of_16(case: TrainerCase) -> Any:
    return read_texts(case, num_train_epochs=10.0)


@alone
@ranked
def batches_of_32(case: TrainerCase) -> Any:
    return read_texts(case, num_train_epochs=20.0, per_device_train_batch_size=32)


def padded_to_most(rows: Any) -> dict[str, Any]:
    """Pad each batch to the longest of all texts, as a data set that is padded beforehand."""
    batch = padded_to_longest(rows)
    more = (0, 64 - batch["input_ids"].shape[1])
    padded = {
        name: nn.functional.pad(batch[name], more) for name in ("input_ids", "attention_mask")
    }
    return {**batch, **padded}


@alone
def padded_beforehand(case: TrainerCase) -> Any:
    return read_texts(case, collate=padded_to_most)


@alone
def padded_by_collator(case: TrainerCase) -> Any:
    """Follow the advice on data sets that are padded beforehand."""
    words = {"[PAD]": 0, **{str(number): number for number in range(1, 100)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="[PAD]")), pad_token="[PAD]"
    )
    return read_texts(case, collate=DataCollatorWithPadding(tokenizer))


@alone
@ranked
def grouped_by_length(case: TrainerCase) -> Any:
    return read_texts(case, train_sampling_strategy="group_by_length")


@alone
@ranked
def compiled(case: TrainerCase) -> Any:
    return case.train(case.logger(), torch_compile=True, torch_compile_backend="aot_eager")


@alone
@ranked
def slow_input(case: TrainerCase) -> Any:
    return case.train(case.logger(), dataset=data(slow_seconds()), num_train_epochs=1.0)


@alone
@ranked
def slow_backward(case: TrainerCase) -> Any:
    return case.train(case.logger(), net=Net(slow_seconds()), num_train_epochs=1.0)


@ranked
def slow_input_with_accumulation(case: TrainerCase) -> Any:
    options = {"gradient_accumulation_steps": 2, "num_train_epochs": 1.0}
    return case.train(case.logger(), dataset=data(slow_seconds()), **options)


@alone
@ranked
def evaluation_and_checkpoints(case: TrainerCase) -> Any:
    often = {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 6, "save_steps": 6}
    return case.train(case.logger(), **often)


@alone
def without_stages(case: TrainerCase) -> Any:
    return case.train(case.logger(stages=False), gradient_accumulation_steps=3)


@alone
@ranked
def raises(case: TrainerCase) -> Any:
    trainer = case.trainer(case.logger(), net=Net(fail_at=5))
    return seen(trainer, raised=raised_by(trainer.train))


@alone
@ranked
def resumed(case: TrainerCase) -> Any:
    """Continue from the checkpoint in the middle of the first epoch; SGD counts no steps."""
    options = {"save_strategy": "steps", "save_steps": 6}
    case.train(max_steps=6, **options)
    trainer = case.trainer(case.logger(), **options)
    trainer.train(resume_from_checkpoint=str(case.folder / "saved" / "checkpoint-6"))
    return seen(trainer)


@alone
def no_trainer(case: TrainerCase) -> Any:
    """Call the callback in a custom loop."""
    logger = case.logger()
    logger.on_train_begin(None, None, None)
    logger.on_epoch_begin(None, None, None)
    logger.on_step_end(None, None, None)
    logger.on_epoch_end(None, None, None)
    logger.on_train_end(None, None, None)
    return {"weights": "", "ours": []}


@alone
@ranked
def recorder_breaks(case: TrainerCase) -> Any:
    silent = case.train()["weights"]
    with broken_recorder():
        return {**case.train(case.logger()), "silent": silent}


class Prepared(Loop):
    """A loop with the optimizer of Accelerate or Fabric."""

    def ours(self) -> list[str]:
        hooks = self.optimizer.optimizer._optimizer_step_post_hooks
        return left_in(self.model) + ["update hook"] * bool(hooks)


class Accelerated(Prepared):
    def __init__(
        self,
        passes: int = 1,
        slow_input: float = 0.0,
        slow_backward: float = 0.0,
        net: Any = None,
        loader: Any = None,
    ) -> None:
        AcceleratorState._reset_state()
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=passes)
        net = net or Net(slow_backward)
        loader = loader or DataLoader(data(slow_input), BATCH)
        prepared = self.accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1), loader)
        super().__init__(net, *prepared)

    def step(self, batch: Any, updates: bool) -> None:
        # Accelerate itself knows when to update.
        with self.accelerator.accumulate(self.model):
            self.accelerator.backward(self.model(**batch)["loss"])
            self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()


class WithFabric(Prepared):
    def __init__(
        self,
        passes: int = 1,
        slow_input: float = 0.0,
        slow_backward: float = 0.0,
        compiles: bool = False,
    ) -> None:
        strategy = "ddp" if RANKS > 1 else "auto"
        self.fabric = Fabric(accelerator="cpu", strategy=strategy, devices=RANKS)
        self.fabric.launch()
        net = Net(slow_backward)
        compiled = torch.compile(net, backend="aot_eager") if compiles else net
        model, optimizer = self.fabric.setup(compiled, torch.optim.SGD(net.parameters(), 0.1))
        loader = self.fabric.setup_dataloaders(DataLoader(data(slow_input), BATCH))
        super().__init__(net, model, optimizer, loader)

    def step(self, batch: Any, updates: bool) -> None:
        waits = RANKS > 1 and not updates
        with self.fabric.no_backward_sync(self.model) if waits else contextlib.nullcontext():
            self.fabric.backward(self.model(**batch)["loss"])
        if updates:
            self.optimizer.step()
            self.optimizer.zero_grad()


# Accelerate makes a step of the last two passes of an epoch.
add_loops("accelerate", Accelerated, CASES, RANKED_CASES, passes=5)
add_loops("fabric", WithFabric, CASES, RANKED_CASES, passes=5)


def read_loader(case: TrainerCase, loader: Any) -> Any:
    net = Reader()
    trained = Accelerated(net=net, loader=loader).train(case)
    return {**trained, "counted": net.counted}


@alone
@ranked
def accelerate_padded(case: TrainerCase) -> Any:
    return read_loader(case, DataLoader(texts(), BATCH, collate_fn=padded_to_longest))


def batches_by_length(dataset: Any) -> list[list[int]]:
    """Shuffle, sort by length within windows of 50 batches, and shuffle the batches."""
    random = torch.Generator().manual_seed(5)
    order = torch.randperm(len(dataset), generator=random).tolist()
    batches = []
    for first in range(0, len(order), 50 * BATCH):
        window = order[first : first + 50 * BATCH]
        window.sort(key=lambda index: len(dataset[index]["input_ids"]))
        batches += [window[at : at + BATCH] for at in range(0, len(window), BATCH)]
    shuffled = torch.randperm(len(batches), generator=random).tolist()
    return [batches[at] for at in shuffled]


@alone
@ranked
def accelerate_by_length(case: TrainerCase) -> Any:
    """Follow the advice on padding in PyTorch."""
    dataset = texts()
    sampler = batches_by_length(dataset)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=padded_to_longest)
    return read_loader(case, loader)


def copies_of(case: TrainerCase, loop: type[Prepared], module: Any, name: str) -> Any:
    """Train on a pretended device, to which each copy of a batch takes a while."""
    copy = getattr(module, name)

    def slow_copy(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.005)
        return copy(*args, **kwargs)

    setattr(module, name, slow_copy)
    try:
        with fake_device(lag_ns=1_000_000):
            trained = loop().train(case)
        return {**trained, "restored": getattr(module, name) is slow_copy}
    finally:
        setattr(module, name, copy)


@alone
def accelerate_full_batches(case: TrainerCase) -> Any:
    """Compare the batches that are said to be full with those that the ranks' loaders give."""
    full, wrong = 0, []
    for samples, ranks, *settings in itertools.product(
        (1, 20, 99), (1, 2, 3), *[(True, False)] * 3
    ):
        loader = DataLoader(torch.arange(samples), 6, drop_last=settings[0])
        for rank in range(ranks):
            prepared = data_loader.prepare_data_loader(
                loader,
                num_processes=ranks,
                process_index=rank,
                even_batches=settings[1],
                split_batches=settings[2],
                put_on_device=False,
                rng_types=[],
            )
            for given in (prepared, data_loader.skip_first_batches(prepared, 2)):
                count, shape = full_batches(given)
                full += count
                if count and [len(batch) for batch in given][:count] != [*shape] * count:
                    wrong.append([samples, ranks, rank, *settings])
    return {"full": full, "wrong": wrong}


@alone
def accelerate_copies(case: TrainerCase) -> Any:
    return copies_of(case, Accelerated, data_loader, "send_to_device")


@alone
def fabric_copies(case: TrainerCase) -> Any:
    return copies_of(case, WithFabric, wrappers, "move_data_to_device")


@ranked
def fabric_compiled(case: TrainerCase) -> Any:
    return WithFabric(compiles=True).train(case)


def main() -> None:
    out, *names = sys.argv[1:]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    run_cases(CASES if RANKS == 1 else RANKED_CASES, Path(out), names, rank(), TrainerCase)
    end_process_group()


if __name__ == "__main__":
    main()
