"""Train the probes chapter with PyTorch on Horovod, on DistributedDataParallel, or with the Trainer.

horovodrun -np 2 python benchmarks/scorecard/train_probes_torch.py PLAN OUT
torchrun --nproc-per-node 2 benchmarks/scorecard/train_probes_torch.py PLAN OUT
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2] / "tests" / "training"))
from asleep import wait_asleep
from pairs_launch import CLASSES, WIDTH, Pause
from probes_plan import (
    BATCH,
    BATCHES_AHEAD,
    LAYERS,
    PROBE_EVERY,
    Device,
    Loader,
    Rank,
    Run,
    read_plan,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info
from train_pairs_torch import (
    Agree,
    Distribute,
    network,
    one_core_per_rank,
    with_ddp,
    with_horovod,
)

Sample = dict[str, Tensor]


class Samples(Dataset):
    """So many samples, each read and decoded as slowly as the loader says."""

    def __init__(self, loader: Loader, number: int) -> None:
        random = torch.Generator().manual_seed(1)
        self._loader = loader
        self._pixels = torch.rand(number, WIDTH, generator=random)
        self._labels = torch.randint(CLASSES, (number,), generator=random)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Sample:
        return self.decode(self.read(index))

    def read(self, index: int) -> Sample:
        worker = get_worker_info()
        self._loader.read(index, 0 if worker is None else worker.id)
        return {"inputs": self._pixels[index], "labels": self._labels[index]}

    def decode(self, sample: Sample) -> Sample:
        self._loader.decode()
        return sample


class Shards(IterableDataset):
    """The same samples in a shard for each worker."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        assert worker is not None
        for index in range(worker.id, len(self._samples), worker.num_workers):
            yield self._samples[index]


class Collate:
    """Makes batches of samples, as slowly as the loader says."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __call__(self, samples: list[Sample]) -> Any:
        self._loader.collate()
        return default_collate(samples)


def train(
    run: Run,
    log_dir: Path,
    epochs: int,
    steps: int,
    pause: Pause,
    *,
    rank: int,
    distribute: Distribute,
) -> None:
    """Train one run with a loop, and pause after every epoch."""
    from stallscope.torch import StepLogger

    loader = run.loader(rank)
    net = network(Device(), LAYERS)
    model, optimizer = distribute(net, torch.optim.SGD(net.parameters(), lr=0.001))
    samples = Samples(loader, steps * BATCH)
    data: DataLoader = DataLoader(
        Shards(samples) if run.sharded else samples,
        BATCH,
        num_workers=loader.workers,
        persistent_workers=loader.workers > 0,
        collate_fn=Collate(loader),
    )
    with StepLogger(
        log_dir,
        optimizer=optimizer,
        model=model,
        run_name=run.name,
        probe_input=BATCHES_AHEAD,
        probe_every=PROBE_EVERY,
    ) as log:
        watched = log.watch(data)
        for _ in range(epochs):
            for batch in watched:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(batch["inputs"]), batch["labels"]).backward()
                optimizer.step()
            pause()


class WithLoss(nn.Module):
    """Returns the loss, as the Trainer asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network(Device(), LAYERS)

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": nn.functional.cross_entropy(self.network(inputs), labels)}


def train_with_trainer(
    run: Run, log_dir: Path, epochs: int, steps: int, pause: Pause, *, rank: int
) -> None:
    """Train one run with Hugging Face's Trainer, and pause after every epoch."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from stallscope.transformers import StepLogger

    class Pauses(TrainerCallback):
        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            pause()

    loader = run.loader(rank)
    with tempfile.TemporaryDirectory() as saved:
        arguments = TrainingArguments(
            saved,
            use_cpu=True,
            ddp_backend="gloo",
            per_device_train_batch_size=BATCH,
            num_train_epochs=epochs,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            optim="sgd",
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            dataloader_num_workers=loader.workers,
            dataloader_persistent_workers=loader.workers > 0,
        )
        log = StepLogger(
            log_dir, run_name=run.name, probe_input=BATCHES_AHEAD, probe_every=PROBE_EVERY
        )
        Trainer(
            WithLoss(),
            arguments,
            train_dataset=Samples(loader, steps * BATCH * run.ranks),
            data_collator=Collate(loader),
            callbacks=[log, Pauses()],
        ).train()


def main() -> None:
    path, out = Path(sys.argv[1]), Path(sys.argv[2])
    framework = read_plan(path).runs[0].framework

    def train_on(rank: int, _ranks: int, distribute: Distribute, _agree: Agree) -> None:
        if framework == "torch":
            # Ranks would poll for others on cores that these and their workers need.
            wait_asleep()
        trained = (
            partial(train_with_trainer, rank=rank)
            if framework == "trainer"
            else partial(train, rank=rank, distribute=distribute)
        )
        Rank(out, rank, trained).run(path)

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    one_core_per_rank()
    (with_horovod if framework == "torch" else with_ddp)(train_on)


if __name__ == "__main__":
    main()
