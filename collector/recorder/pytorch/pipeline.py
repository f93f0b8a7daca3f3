"""Stages of a ``DataLoader``: what samples take, by the functions that make them, and a batch of them.

They are measured in this process, without workers.
"""

from __future__ import annotations

import itertools
import re
from contextlib import nullcontext
from time import monotonic_ns
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional

from torch.utils.data import DataLoader, IterableDataset

from ..measured import AUGMENT, BATCH, DECODE, OTHER, READ, Mean, Stage, mean_of
from ..measuring import Stages, name_of
from .calls import Calls

# Batches that are made stage by stage, and how long that may take at most.
_BATCHES = 40
_LONGEST_SECONDS = 20.0
_FEWEST_BATCHES = 4
# Of getting samples; functions that take less are no stages of their own.
_WORTH = 0.03

_WORDS = (
    (AUGMENT, re.compile(r"aug|random|flip|crop|jitter|rotat|distort|mixup|cutout", re.IGNORECASE)),
    (
        DECODE,
        re.compile(
            r"decod|pars|totensor|toimage|toarray|to_tensor|convert|resiz|normali", re.IGNORECASE
        ),
    ),
    (READ, re.compile(r"read|load|open|fetch|download", re.IGNORECASE)),
)


def stages_of(loader: "DataLoader[Any]") -> Stages:
    """The stages, in the order in which a sample goes through them first."""
    getting: List[int] = []
    collating: List[int] = []
    watched: List[int] = []
    spent: List[Dict[str, int]] = []
    deadline = monotonic_ns() + int(_LONGEST_SECONDS * 1e9)
    # The first batch opens files and fills caches.
    for number, get in enumerate(itertools.islice(_batches(loader), _BATCHES + 1), -1):
        calls = Calls(loader.dataset) if number % 2 else None
        watching: ContextManager[Any] = nullcontext() if calls is None else calls
        begin = monotonic_ns()
        with watching:
            samples = get()
        got = monotonic_ns()
        if samples is None:
            break
        if loader.collate_fn is not None:
            loader.collate_fn(samples)
        collated = monotonic_ns()
        if number < 0:
            continue
        if calls is None:
            getting.append(got - begin)
        else:
            watched.append(got - begin)
            spent.append(calls.spent)
        collating.append(collated - got)
        if collated > deadline and len(collating) >= _FEWEST_BATCHES:
            break
    if len(collating) < _FEWEST_BATCHES:
        return [], "too few batches to measure stages"
    stages = _of_getting(loader, mean_of(getting), watched, spent)
    stages.append(Stage(BATCH, name_of(loader.collate_fn), mean_of(collating)))
    return stages, _said_of_workers(loader)


def _of_getting(
    loader: "DataLoader[Any]", whole: Mean, watched: List[int], spent: List[Dict[str, int]]
) -> List[Stage]:
    """What getting samples takes, by the functions that the data set calls."""
    # Being watched takes time as well: of these batches only shares count.
    scale = whole.ms * 1e6 * len(watched) / max(1, sum(watched))
    names = list(dict.fromkeys(itertools.chain.from_iterable(spent)))
    stages = []
    rest = whole.ms
    for name in names:
        mean = mean_of([round(one.get(name, 0) * scale) for one in spent])
        if mean.ms >= _WORTH * whole.ms:
            stages.append(Stage(_kind(name), name, mean))
            rest -= mean.ms
    own = Mean(rest, None if stages else whole.ci95)
    return [Stage(READ, _getting_name(loader), own), *stages]


def _said_of_workers(loader: "DataLoader[Any]") -> Optional[str]:
    if not loader.num_workers:
        return None
    return "stages are those of one process; %d workers share them, and hand batches over" % (
        loader.num_workers
    )


def _batches(loader: "DataLoader[Any]") -> Iterator[Callable[[], Any]]:
    """What gets the samples of one batch after the other; None instead of samples where data ends."""
    dataset = loader.dataset
    if isinstance(dataset, IterableDataset):
        samples = iter(dataset)
        size = loader.batch_size or 1
        return itertools.repeat(lambda: list(itertools.islice(samples, size)) or None)
    if loader.batch_sampler is None:
        return (lambda index=index: dataset[index] for index in loader.sampler)  # type: ignore[misc]
    return (lambda own=own: _samples(dataset, own) for own in loader.batch_sampler)  # type: ignore[misc]


def _samples(dataset: Any, indices: List[Any]) -> Any:
    if hasattr(dataset, "__getitems__"):
        return dataset.__getitems__(indices)
    return [dataset[index] for index in indices]


def _kind(name: str) -> str:
    return next((kind for kind, words in _WORDS if words.search(name)), OTHER)


def _getting_name(loader: "DataLoader[Any]") -> str:
    method = "__iter__" if isinstance(loader.dataset, IterableDataset) else "__getitem__"
    return "%s.%s" % (type(loader.dataset).__name__, method)
