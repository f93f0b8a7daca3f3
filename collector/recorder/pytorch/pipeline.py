"""Measure the stages of a ``DataLoader``: the functions that make samples, and collating a batch.

Everything runs in this process, without workers.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from time import monotonic_ns
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional

from torch.utils.data import DataLoader, IterableDataset

from ..input.measure import Stages, name_of
from ..input.result import BATCH, OTHER, READ, Mean, Stage, kind_of_function, mean_of
from .dataset_profile import DatasetProfile

# Batches that are made stage by stage, and the longest time for that.
_BATCHES = 40
_LONGEST_SECONDS = 20.0
_FEWEST_BATCHES = 4
# A function below this share of fetching samples is not a separate stage.
_SMALLEST_SHARE = 0.03


def stages_of(loader: "DataLoader[Any]") -> Stages:
    """Return the stages, in the order in which a sample first passes through them."""
    fetching: List[int] = []
    collating: List[int] = []
    profiled: List[int] = []
    spent: List[Dict[str, int]] = []
    deadline = monotonic_ns() + int(_LONGEST_SECONDS * 1e9)
    # The first batch opens files and fills caches.
    for number, get in enumerate(itertools.islice(_batches(loader), _BATCHES + 1), -1):
        profile = DatasetProfile(loader.dataset) if number % 2 else None
        context: ContextManager[Any] = nullcontext() if profile is None else profile
        begin = monotonic_ns()
        with context:
            samples = get()
        got = monotonic_ns()
        if samples is None:
            break
        if loader.collate_fn is not None:
            loader.collate_fn(samples)
        collated = monotonic_ns()
        if number < 0:
            continue
        if profile is None:
            fetching.append(got - begin)
        else:
            profiled.append(got - begin)
            spent.append(profile.spent)
        collating.append(collated - got)
        if collated > deadline and len(collating) >= _FEWEST_BATCHES:
            break
    if len(collating) < _FEWEST_BATCHES:
        return [], "too few batches to measure stages"
    stages = _stages_of_fetching(loader, mean_of(fetching), profiled, spent)
    stages.append(Stage(BATCH, name_of(loader.collate_fn), mean_of(collating)))
    return stages, _note_on_workers(loader)


def _stages_of_fetching(
    loader: "DataLoader[Any]", whole: Mean, profiled: List[int], spent: List[Dict[str, int]]
) -> List[Stage]:
    """Return the time of fetching samples, by the functions that the data set calls."""
    # Profiling takes time as well: only the shares of these batches count.
    scale = whole.ms * 1e6 * len(profiled) / max(1, sum(profiled))
    names = list(dict.fromkeys(itertools.chain.from_iterable(spent)))
    stages = []
    rest = whole.ms
    for name in names:
        mean = mean_of([round(batch.get(name, 0) * scale) for batch in spent])
        if mean.ms >= _SMALLEST_SHARE * whole.ms:
            stages.append(Stage(kind_of_function(name) or OTHER, name, mean))
            rest -= mean.ms
    reading = Mean(rest, None if stages else whole.ci95)
    return [Stage(READ, _fetching_name(loader), reading), *stages]


def _note_on_workers(loader: "DataLoader[Any]") -> Optional[str]:
    if not loader.num_workers:
        return None
    return "stages are those of one process; %d workers share them and pass batches on" % (
        loader.num_workers
    )


def _batches(loader: "DataLoader[Any]") -> Iterator[Callable[[], Any]]:
    """Yield functions that fetch the samples of one batch each; they return None where data ends."""
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset):
        samples = iter(dataset)
        size = loader.batch_size or 1
        return itertools.repeat(lambda: list(itertools.islice(samples, size)) or None)
    if loader.batch_sampler is None:
        return (lambda index=index: dataset[index] for index in loader.sampler)  # type: ignore[misc]
    return (lambda indices=indices: _samples(dataset, indices) for indices in loader.batch_sampler)  # type: ignore[misc]


def _samples(dataset: Any, indices: List[Any]) -> Any:
    if hasattr(dataset, "__getitems__"):
        return dataset.__getitems__(indices)
    return [dataset[index] for index in indices]


def _fetching_name(loader: "DataLoader[Any]") -> str:
    method = "__iter__" if isinstance(loader.dataset, IterableDataset) else "__getitem__"
    return "%s.%s" % (type(loader.dataset).__name__, method)
