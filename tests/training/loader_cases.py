"""Train on small DataLoaders, each with its own log folder: python loader_cases.py OUT [CASE …]

A case returns the batches that training has taken with the recorder, and without it as ``silent``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from case_runner import Cases, run_cases
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from stallscope.torch import StepLogger

CASES = Cases()
#: How long a slow worker or function sleeps.
SLEEP_SECONDS = 0.06
SAMPLES, BATCH = 48, 4
#: Batches that an input probe fetches ahead, in each epoch.
PROBED = 4
_started_as = [-1]
#: Only a training with a recorder takes its time: the other one's batches alone are compared.
_is_timed = [True]


def sleep(seconds: float) -> None:
    if _is_timed[0]:
        time.sleep(seconds)


def started(worker: int) -> None:
    """Note the worker's number, as a user's ``worker_init_fn``."""
    _started_as[0] = worker


def augment(sample: Any) -> Any:
    sleep(SLEEP_SECONDS / BATCH)
    return sample


class Samples(Dataset):
    """Random samples, with the worker that its start has noted."""

    def __init__(
        self, slow_worker: int | None = None, fails_at: int = -1, augments: bool = False
    ) -> None:
        self.slow_worker = slow_worker
        self.fails_at = fails_at
        self.augments = augments

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        if index == self.fails_at:
            raise LookupError("sample 21 is torn")
        worker = get_worker_info()
        if worker is not None and worker.id == self.slow_worker:
            sleep(SLEEP_SECONDS / BATCH)
        sample = torch.rand(3), index, _started_as[0]
        return augment(sample) if self.augments else sample


class Numbers(Samples):
    def __getitem__(self, index: int) -> int:
        return int(super().__getitem__(index)[1])


class ColdFiles(Numbers):
    """Files on a remote store with a cache: the first reading of each takes long."""

    def __init__(self, cache: Path) -> None:
        super().__init__()
        self.cache = cache

    def __len__(self) -> int:
        return 2 * SAMPLES

    def __getitem__(self, index: int) -> int:
        cached = self.cache / str(index)
        sleep(SLEEP_SECONDS / BATCH if cached.exists() else SLEEP_SECONDS)
        cached.touch()
        return super().__getitem__(index)


class Computed(Numbers):
    """Samples that keep a core busy."""

    def __len__(self) -> int:
        return 4 * SAMPLES

    def __getitem__(self, index: int) -> int:
        end = time.thread_time() + SLEEP_SECONDS / BATCH
        while _is_timed[0] and time.thread_time() < end:
            pass
        return super().__getitem__(index)


class Stream(IterableDataset):
    """Samples of which each worker has another number."""

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        assert worker is not None
        return iter(range(100 * worker.id, 100 * worker.id + 8 * (worker.id + 1)))


def collate(samples: Any) -> Any:
    """Join samples slowly."""
    sleep(SLEEP_SECONDS)
    return torch.utils.data.default_collate(samples)


#: Where loaders themselves keep their iterators.
_ITERATORS = ("_iterator", "_batches")


def as_text(batches: Iterable[Any]) -> list[str]:
    return list(map(str, batches))


def taken(
    folder: Path, loader: Iterable[Any], epochs: int = 1, most: int | None = None, **options: Any
) -> Any:
    """Return the batches with and without a recorder, and what a recorder leaves in the loader."""
    untouched = dict(getattr(loader, "__dict__", {}))
    texts = []
    for recorded in (True, False):
        _is_timed[0] = recorded
        torch.manual_seed(3)
        batches: list[Any] = []
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        log = StepLogger(
            folder / "logs", optimizer=optimizer, model=model, machine=False, **options
        )
        with log if recorded else contextlib.nullcontext():
            for _ in range(epochs):
                watched = log.watch(loader) if recorded else loader
                for batch in itertools.islice(watched, most):
                    batches.append(batch)
                    model(torch.ones(1, 1)).sum().backward()
                    optimizer.step()
        texts.append(as_text(batches))
        left = {
            name
            for name, value in getattr(loader, "__dict__", {}).items()
            if name not in _ITERATORS and untouched.get(name) is not value
        }
        if getattr(loader, "_iterator", None) is not None:
            # Persistent workers would go on for the training without a recorder.
            loader._iterator._shutdown_workers()
            loader._iterator = None
    _is_timed[0] = True
    return {"batches": texts[0], "silent": texts[1], "ours": sorted(left)}


class OwnIterator(DataLoader):
    """A loader that is its own iterator, as Ray Train's, and draws where it begins."""

    def __iter__(self) -> Any:
        self._batches = super().__iter__()
        return self

    def __next__(self) -> Any:
        return next(self._batches)


def add(name: str, make: Callable[[], Iterable[Any]], **options: Any) -> None:
    def case(folder: Path) -> Any:
        return taken(folder, make(), **options)

    case.__name__ = name
    CASES.add(case)


def loader_of(data: Any, workers: int = 2, **options: Any) -> DataLoader[Any]:
    return DataLoader(data, batch_size=BATCH, num_workers=workers, **options)


add("in_process", lambda: loader_of(Samples(), 0, collate_fn=collate), epochs=2)
add("augmented_in_process", lambda: DataLoader(Samples(augments=True)))
add(
    "probed",
    lambda: loader_of(Samples(augments=True), 1),
    epochs=3,
    probe_input=PROBED,
    probe_every=2 * PROBED,
)
add("forked", lambda: loader_of(Samples(slow_worker=1), worker_init_fn=started), epochs=2)
add("persistent", lambda: loader_of(Samples(), persistent_workers=True, shuffle=True), epochs=3)
add(
    "spawned",
    lambda: loader_of(Samples(), 1, multiprocessing_context="spawn", worker_init_fn=started),
)
add("collated", lambda: loader_of(Samples(), collate_fn=collate))
add("augmented", lambda: loader_of(Samples(augments=True), prefetch_factor=4), epochs=2)
add("stream", lambda: loader_of(Stream()))
add("left_early", lambda: loader_of(Samples()), epochs=2, most=3)
add("own_iterator", lambda: OwnIterator(Samples(), BATCH, shuffle=True), epochs=2)
add("not_a_loader", lambda: [torch.ones(2)] * 5)


@CASES.add
def cold(folder: Path) -> Any:
    """Read each file slowly in the first epoch only; the silent training finds all in the cache."""
    cache = folder / "cache"
    cache.mkdir()
    loader = loader_of(ColdFiles(cache), 1, persistent_workers=True)
    return taken(folder, loader, epochs=3)


add("crowded", lambda: loader_of(Computed(), 2 * len(os.sched_getaffinity(0))), epochs=2)


@CASES.add
def raises(folder: Path) -> Any:
    """Return the error of a sample, with and without a recorder."""
    messages = []
    for recorded in (True, False):
        loader: Any = loader_of(Samples(fails_at=21))
        try:
            with StepLogger(folder / "logs", machine=False) as log:
                for _ in log.watch(loader) if recorded else loader:
                    pass
        except LookupError as error:
            first, *_, last = str(error).splitlines()
            messages.append((first, last))
    return {"batches": messages[0], "silent": messages[1], "ours": []}


@CASES.add
def out_of_order(folder: Path) -> Any:
    """Return the numbers of the samples: which worker draws their random values is chance."""
    loader = loader_of(Numbers(), in_order=False)
    result = taken(folder, loader)
    return {**result, "batches": sorted(result["batches"]), "silent": sorted(result["silent"])}


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_cases(CASES, Path(sys.argv[1]), sys.argv[2:], 0)
