"""Measure a ``DataLoader`` alone, and its stages: the functions that make samples, and collating.

Everything runs in this process, without workers.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import os
import sys
from time import monotonic_ns
from types import FrameType
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Set

from torch.utils.data import DataLoader, IterableDataset

from ..input.input_times import BATCH, OTHER, READ, Mean, Stage, kind_of_function, mean_of
from ..input.measuring_input import Loader, Stages, measure_input_of, name_of, without_stages
from ..job.job_facts import count_or_none
from .batches import samples_in

# Batches that are made stage by stage, and the longest time for that.
_BATCHES = 40
_LONGEST_SECONDS = 20.0
_FEWEST_BATCHES = 4
# A function below this share of fetching samples is not a separate stage.
_SMALLEST_SHARE = 0.03
_DATA_SET_METHODS = ("__getitem__", "__getitems__", "__iter__", "__next__")
# The most data sets around data sets.
_DEEPEST = 10
_WITHIN = ("<listcomp>", "<genexpr>")
# Functions that only call what gives samples.
_PASS_ON = (next, list, tuple)
# Hugging Face's streams call the user's functions in functions of their own.
_PASSING_LIBRARIES = ("datasets",)
# For a callable object, its class is the name.
_CALLED = ("__call__", "_wrapped_call_impl", "_call_impl", "forward")


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
        context: ContextManager[Any] = contextlib.nullcontext() if profile is None else profile
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


# -- Find the functions that a data set's ``__getitem__`` spends its time in ----------------------
#
# Python reports every call while a profile function is set. This times the calls that a data set
# and its wrappers make (data sets around data sets, and composed transforms). Calls inside timed
# ones are ignored, but Python's reports still take time. So only the shares count, not the times.


class DatasetProfile:
    """A context that counts nanoseconds by the name of the called function."""

    def __init__(self, dataset: Any) -> None:
        self.spent: Dict[str, int] = {}
        self._datasets = _with_inner(dataset)
        self._is_iterable = isinstance(dataset, IterableDataset)
        # Frames of data sets and their wrappers, and the frame that is timed.
        self._wrappers: Set[FrameType] = set()
        self._timed: Any = None
        self._name = ""
        self._began = 0
        self._before: Any = None

    def __enter__(self) -> "DatasetProfile":
        self._before = sys.getprofile()
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(self._before)
        self._wrappers.clear()
        self._timed = None

    def _profile(self, frame: FrameType, event: str, function: Any) -> None:
        if self._timed is not None:
            if frame is self._timed and event in ("return", "c_return", "c_exception"):
                self._end_call()
        elif event == "call":
            self._start_call(frame)
        elif event == "return":
            self._wrappers.discard(frame)
        elif event == "c_call" and frame in self._wrappers and function not in _PASS_ON:
            self._time(frame, getattr(function, "__qualname__", "") or repr(function))

    def _start_call(self, frame: FrameType) -> None:
        name = frame.f_code.co_name
        inside = frame.f_back in self._wrappers
        if self._is_generator_of_samples(frame, inside):
            self._wrappers.add(frame)
        elif name in _DATA_SET_METHODS or inside:
            owner = _owner(frame)
            if self._is_wrapper(frame, owner, inside):
                self._wrappers.add(frame)
            elif inside:
                named = type(owner).__name__ if name in _CALLED else _qualified(frame)
                self._time(frame, named)

    def _is_generator_of_samples(self, frame: FrameType, inside: bool) -> bool:
        """Return whether it is a generator through which an iterable data set takes its samples."""
        is_generator = bool(frame.f_code.co_flags & inspect.CO_GENERATOR)
        return self._is_iterable and is_generator and (inside or not self._wrappers)

    def _is_wrapper(self, frame: FrameType, owner: Any, inside: bool) -> bool:
        name = frame.f_code.co_name
        if name in _DATA_SET_METHODS and any(owner is dataset for dataset in self._datasets):
            return True
        if not inside or any(owner is dataset for dataset in self._datasets):
            return False
        if frame.f_globals.get("__name__", "").partition(".")[0] in _PASSING_LIBRARIES:
            return True
        composed = isinstance(getattr(owner, "transforms", None), list)
        # torchvision's wrapper around the transforms of a sample and of its target.
        paired = hasattr(owner, "transform") and hasattr(owner, "target_transform")
        return name in _WITHIN or (name in _CALLED and (composed or paired))

    def _time(self, frame: FrameType, name: str) -> None:
        self._timed, self._name, self._began = frame, name, monotonic_ns()

    def _end_call(self) -> None:
        self.spent[self._name] = self.spent.get(self._name, 0) + monotonic_ns() - self._began
        self._timed = None


def _with_inner(dataset: Any) -> List[Any]:
    """Return the data set and the data sets that it wraps."""
    datasets = [dataset]
    while getattr(datasets[-1], "dataset", None) is not None and len(datasets) < _DEEPEST:
        datasets.append(datasets[-1].dataset)
    return datasets


def _owner(frame: FrameType) -> Optional[Any]:
    """Return the object of a method: its first argument."""
    names = frame.f_code.co_varnames
    return frame.f_locals.get(names[0]) if names and frame.f_code.co_argcount else None


def _qualified(frame: FrameType) -> str:
    # Before Python 3.11 code objects have only the bare name.
    name: str = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
    return name.replace("<locals>.", "").replace("<lambda>", "lambda")


# -- Read the queue of Petastorm's loaders, into which a pool reads and decodes row groups ----------
#
# The queue shows which side is slow: row groups pile up if the slow side is after it, such as
# shuffling and collating.

# With a fuller queue training does not wait for the pool.
_PILED_UP = 0.5
# Petastorm refuses to reset a reader in the middle of an epoch.
_ONCE = "Its reader cannot restart before its end: training needs another one"


def is_petastorm_loader(data: Any) -> bool:
    """Return whether it is one of Petastorm's loaders, with a reader."""
    return type(data).__module__.startswith("petastorm.") and hasattr(data, "reader")


def petastorm_loader(data: Any) -> Loader:
    """Describe one of Petastorm's loaders; its queue is checked after every batch."""
    queue = PoolQueue(data)

    def samples(batch: Any) -> Any:
        queue.sample()
        return samples_in(batch)

    def stages() -> Stages:
        return [], queue.description()

    return Loader("pytorch", "Petastorm", lambda: iter(data), samples, 1, stages)


def queue_of(data: Any, known: Optional["PoolQueue"]) -> Optional["PoolQueue"]:
    """Return the queue of Petastorm's loader, ``known`` if it is the same; None for other loaders."""
    if not is_petastorm_loader(data):
        return None
    same = known is not None and known.reader is data.reader
    return known if same else PoolQueue(data)


class PoolQueue:
    """The queue between a pool and training."""

    def __init__(self, loader: Any) -> None:
        self.reader = loader.reader
        self._loader = type(loader).__name__
        self._waiting: List[int] = []

    def sample(self) -> None:
        # Petastorm's reader serves training: its errors must not spread.
        with contextlib.suppress(Exception):
            size = self.reader.diagnostics.get("output_queue_size")
            if isinstance(size, int):
                self._waiting.append(size)

    def fact(self) -> Dict[str, Any]:
        """Describe the pool and the mean number of waiting row groups; None where hidden."""
        pool = getattr(self.reader, "_workers_pool", None)
        waiting = self._after_start()
        return {
            "pool": None if pool is None else type(pool).__name__,
            "workers": count_or_none(getattr(pool, "workers_count", None)),
            "room": count_or_none(getattr(pool, "_results_queue_size", None)),
            "waiting": sum(waiting) / len(waiting) if waiting else None,
            "looks": len(waiting),
            "batched": getattr(self.reader, "batched_output", None),
            "loader": self._loader,
        }

    def description(self) -> str:
        pool = getattr(self.reader, "_workers_pool", None)
        workers = getattr(pool, "workers_count", None)
        size = "" if workers is None else " of %s" % workers
        name = "Petastorm's pool (%s%s)" % (type(pool).__name__, size)
        return "%s: %s. %s" % (name, self._slow_side(), _ONCE)

    def _after_start(self) -> List[int]:
        """Skip the start: then the queue is empty or full, whichever side is slow."""
        return self._waiting[len(self._waiting) // 2 :]

    def _slow_side(self) -> str:
        later = self._after_start()
        if not later:
            return "the length of its queue is unknown"
        mean = sum(later) / len(later)
        capacity = getattr(getattr(self.reader, "_workers_pool", None), "_results_queue_size", None)
        if not capacity:
            return "%.3g row groups waited on average" % mean
        piled = mean > _PILED_UP * capacity
        slow = "the work after it" if piled else "the pool, which reads and decodes,"
        return "%.3g row groups of at most %s waited on average: %s takes most time" % (
            mean,
            capacity,
            slow,
        )


# -- ``measure_input`` for PyTorch: the speed of a loader without training ------------------------


def loader_of(data: Any) -> Loader:
    """Describe a loader; raise ``TypeError`` if it is not iterable."""
    if not hasattr(data, "__iter__"):
        raise TypeError(
            "data must be an iterable of batches; %s is not iterable" % type(data).__name__
        )
    kind, ahead, stages = name_of(type(data)), 1, without_stages(data)
    workers: Optional[Callable[[int, int], Iterator[Any]]] = None
    if isinstance(data, DataLoader):
        kind, ahead = "DataLoader", data.num_workers * (data.prefetch_factor or 1)
        stages, workers = functools.partial(stages_of, data), functools.partial(_with_workers, data)
    elif is_petastorm_loader(data):
        return petastorm_loader(data)
    elif hasattr(data, "__next__"):
        kind = "iterator"
    return Loader("pytorch", kind, lambda: iter(data), samples_in, ahead, stages, workers)


def _with_workers(data: "DataLoader[Any]", workers: int, prefetch: int) -> Iterator[Any]:
    """Return the batches of the same loader with other workers."""
    batches: Dict[str, Any] = {"batch_sampler": data.batch_sampler}
    if data.batch_sampler is None:
        batches = {"batch_size": None, "sampler": data.sampler}
    elif isinstance(data.dataset, IterableDataset):
        batches = {"batch_size": data.batch_size, "drop_last": data.drop_last}
    return iter(
        DataLoader(
            data.dataset,
            num_workers=workers,
            prefetch_factor=prefetch,
            collate_fn=data.collate_fn,
            pin_memory=data.pin_memory,
            timeout=data.timeout,
            worker_init_fn=data.worker_init_fn,
            multiprocessing_context=data.multiprocessing_context,
            generator=data.generator,
            **batches,
        )
    )


measure_input = measure_input_of(loader_of)


# -- Time without a CPU core ----------------------------------------------------------------------


def crowded_clock() -> Callable[[], int]:
    """Return a clock of the nanoseconds in which this thread was ready to run and had no CPU core.

    Linux counts them for each thread. The clock returns -1 where nothing does.
    """
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except (OSError, AttributeError):
        return lambda: -1

    def crowded() -> int:
        try:
            return int(os.pread(file, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):  # such as a file that the user's code has closed
            return -1

    return crowded
