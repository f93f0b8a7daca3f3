"""Train on streams of WebDataset, Hugging Face and Ray Data: python iterable_cases.py OUT [CASE …]

A case returns sums of the batches that training has taken with the recorder; ``silent``: without it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets
import ray
import torch
import webdataset
from case_runner import Cases, run_cases
from torch.utils.data import DataLoader

from stallscope.torch import StepLogger

CASES = Cases()
SAMPLES, BATCH = 96, 8
#: Seconds that a function takes for a sample, and a slow shard besides.
SLEEP_SECONDS, SLOW_SECONDS = 0.005, 0.02
SLOW_SHARD = 3
#: Only a training with a recorder takes its time: the other one's batches alone are compared. Processes
#: that it starts inherit this variable.
_TIMED = "TRAINING_TAKES_ITS_TIME"
# Sends a file slowly, as a busy server: the arguments are the file and the seconds for each sample.
_SLOW_SERVER = f"""
import os, sys, time
with open(sys.argv[1], "rb") as file:
    while chunk := file.read(2048):
        time.sleep(float(sys.argv[2]) * ("{_TIMED}" in os.environ))
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
"""


def sleep(seconds: float) -> None:
    if _TIMED in os.environ:
        time.sleep(seconds)


def augment(sample: Any) -> Any:
    sleep(SLEEP_SECONDS)
    return sample


def trained(folder: Path, loader: Iterable[Any], epochs: int = 2, seconds: float = 0.0) -> Any:
    """Return the sums of the batches with and without a recorder; ``seconds`` is a step's compute."""
    sums = []
    for recorded in (True, False):
        if recorded:
            os.environ[_TIMED] = "1"
        else:
            del os.environ[_TIMED]
        taken: list[float] = []
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        log = StepLogger(folder / "logs", optimizer=optimizer, model=model, machine=False)
        with log if recorded else contextlib.nullcontext():
            for _ in range(epochs):
                for batch in log.watch(loader) if recorded else loader:
                    taken.append(float(batch.sum() if torch.is_tensor(batch) else batch["x"].sum()))
                    model(torch.ones(1, 1)).sum().backward()
                    optimizer.step()
                    sleep(seconds)
        sums.append(taken)
    return {"batches": sums[0], "silent": sums[1]}


# -- WebDataset -----------------------------------------------------------------------------------


def shards(folder: Path, count: int, slow: int | None = None) -> list[str]:
    """Write so many shards, and return their addresses; one of them is sent slowly."""
    addresses = []
    (folder / "server.py").write_text(_SLOW_SERVER)
    for number in range(count):
        path = folder / f"train-{number}.tar"
        with webdataset.TarWriter(str(path)) as sink:
            for sample in range(SAMPLES):
                sink.write({"__key__": f"{sample:04}", "x.pth": torch.full((4,), float(sample))})
        served = f"pipe:{sys.executable} {folder / 'server.py'} {path} {SLOW_SECONDS}"
        addresses.append(served if number == slow else str(path))
    return addresses


def web_loader(addresses: list[str], workers: int, *functions: Any, **options: Any) -> Any:
    data = webdataset.WebDataset(addresses, shardshuffle=False, **options).decode()
    data = data.to_tuple("x.pth").map_tuple(*functions).batched(BATCH, collation_fn=collated)
    return webdataset.WebLoader(data, batch_size=None, num_workers=workers)


def collated(samples: Any) -> Any:
    return torch.stack([sample[0] for sample in samples])


@CASES.add
def web_dataset(folder: Path) -> Any:
    """Keep up with a training that takes longer than the data."""
    loader = web_loader(shards(folder, 4), 2, torch.neg)
    return trained(folder, loader, epochs=1, seconds=0.1)


@CASES.add
def slow_shard(folder: Path) -> Any:
    return trained(folder, web_loader(shards(folder, 6, SLOW_SHARD), 1, augment))


@CASES.add
def few_shards(folder: Path) -> Any:
    loader = web_loader(shards(folder, 2), 4, augment, empty_check=False)
    return trained(folder, loader, epochs=4)


@CASES.add
def sliced(folder: Path) -> Any:
    """Take some batches of all workers."""
    loader = web_loader(shards(folder, 4), 2, augment).slice(80)
    return trained(folder, loader)


# -- Hugging Face's streams -----------------------------------------------------------------------


def samples_of(files: list[str]) -> Iterator[Any]:
    for file in files:
        for sample in range(SAMPLES):
            if file == f"part-{SLOW_SHARD}.parquet":
                sleep(SLOW_SECONDS)
            yield {"x": float(sample)}


@CASES.add
def hugging_face(folder: Path) -> Any:
    files = [f"part-{number}.parquet" for number in range(6)]
    data = datasets.IterableDataset.from_generator(samples_of, gen_kwargs={"files": files})
    loader: Any = DataLoader(data.map(augment), batch_size=BATCH, num_workers=1)
    return trained(folder, loader)


# -- Others ---------------------------------------------------------------------------------------


def augment_block(block: Any) -> Any:
    time.sleep(BATCH * SLEEP_SECONDS)
    return {"x": block["id"]}


@CASES.add
def ray_data(folder: Path) -> Any:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        # Before there is a data set, which keeps the options of its time.
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        data = ray.data.range(60 * BATCH, override_num_blocks=60).map_batches(
            augment_block, batch_size=BATCH
        )
        return trained(folder, data.iter_torch_batches(batch_size=BATCH), epochs=1)
    finally:
        ray.shutdown()


class OtherLoader:
    """A loader of another library, which shows nothing."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(100):
            sleep(BATCH * SLEEP_SECONDS)
            yield torch.full((BATCH,), float(number))


@CASES.add
def other_loader(folder: Path) -> Any:
    return trained(folder, OtherLoader(), epochs=1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_cases(CASES, Path(sys.argv[1]), sys.argv[2:], 0)
