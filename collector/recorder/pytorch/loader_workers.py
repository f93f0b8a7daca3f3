"""Time every batch of a ``DataLoader`` where it is made: in its workers, or in this process.

Each worker writes a record per batch into memory that it shares with the training process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import multiprocessing
import os
import struct
import sys
import time
from collections import Counter
from time import monotonic_ns
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional

import torch
from torch.utils.data import DataLoader, IterableDataset

from ..job.job_facts import batches_in
from .batches import RAYS_LOADER
from .iterable_sources import (
    ShardTimes,
    loader_in_pipeline,
    passes_batches_on,
    shard_name,
    shards_of,
)
from .loader_pipeline import DatasetProfile

# Records that one worker may write between two readings.
_ROOM = 512
# One in so many batches of a worker is timed function by function, in at most this share of its time.
_PROFILED, _PROFILE_SHARE = 32, 0.01
# One in so many batches of a loader without workers has its collating timed.
_COLLATED = 8
_TEXT_BYTES = 2048
#: The most functions that are named.
MOST_FUNCTIONS = 8


class Made(NamedTuple):
    """A batch that the loader has made, in monotonic nanoseconds."""

    #: Counts the record, from 1.
    number: int
    #: Counts the worker's iterations over its data set, from 0.
    iteration: int
    #: The place of the batch in the loader's order, from 0; -1 if unknown.
    place: int
    began: int
    ended: int
    #: The time of ``collate_fn``, and the CPU time of all.
    collate: int
    cpu: int
    #: How long it was ready to run and had no CPU core; -1 if unknown.
    crowded: int
    kind: int


_RECORD = struct.Struct("=9q")
_NUMBER = struct.Struct("=q")
_TEXT = struct.Struct("=%ds" % _TEXT_BYTES)
#: Kinds of records: a batch, one whose functions were timed, an exception or the end of the data.
BATCH, PROFILED_BATCH, NOTHING = 0, 1, 2
Write = Callable[[int, int, int, int, int, int, int, int], None]


class SharedRecords:
    """The records of all workers of one iterator: one ring for each, and a text."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        # It has no name that could outlive the processes; fork and spawn both pass it on.
        rings = workers * _ROOM * _RECORD.size
        self._memory = multiprocessing.RawArray(ctypes.c_char, rings + workers * _TEXT_BYTES)
        self._next = [1] * workers
        #: Whether a worker has overwritten records that were not read.
        self.lost = False

    def writer(self, worker: int) -> Write:
        """Return the function with which a worker adds a record."""
        memory, start, number = self._memory, worker * _ROOM * _RECORD.size, 0

        def write(*values: int) -> None:
            nonlocal number
            number += 1
            at = start + number % _ROOM * _RECORD.size
            _RECORD.pack_into(memory, at, 0, *values)
            # The number is last: a record without it is not complete.
            _NUMBER.pack_into(memory, at, number)

        return write

    def read(self, worker: int) -> Iterator[Made]:
        """Yield the records of a worker that are new."""
        memory, start = self._memory, worker * _ROOM * _RECORD.size
        while True:
            number = self._next[worker]
            record = Made(*_RECORD.unpack_from(memory, start + number % _ROOM * _RECORD.size))
            if record.number == number:
                self._next[worker] = number + 1
                yield record
            elif record.number > number:
                self.lost = True
                self._next[worker] = record.number
            else:
                return

    def write_text(self, worker: int, text: bytes) -> None:
        at = self.workers * _ROOM * _RECORD.size + worker * _TEXT_BYTES
        _TEXT.pack_into(self._memory, at, text)

    def text(self, worker: int) -> bytes:
        at = self.workers * _ROOM * _RECORD.size + worker * _TEXT_BYTES
        text: bytes = _TEXT.unpack_from(self._memory, at)[0]
        return text.rstrip(b"\0")


# -- In the workers -------------------------------------------------------------------------------


class WorkerStart:
    """The loader's ``worker_init_fn``: watches what makes batches, and calls the user's function."""

    def __init__(self, init: Optional[Callable[[int], Any]], records: SharedRecords) -> None:
        self._init = init
        self._records = records
        self._parent = os.getpid()

    def __call__(self, worker: int) -> Any:
        # Workers may be threads: this process's own loaders must not change.
        if os.getpid() != self._parent:
            with contextlib.suppress(Exception):  # the worker works without it
                _watch_worker(worker, self._records)
        return None if self._init is None else self._init(worker)


def _watch_worker(worker: int, records: SharedRecords) -> None:
    """Time each batch of this process; it makes a fetcher for each iteration over its data set."""
    kinds = torch.utils.data._DatasetKind
    create, write, crowded = kinds.create_fetcher, records.writer(worker), _crowded_clock()
    text = WorkerText(lambda text: records.write_text(worker, text))
    iterations = 0

    def create_fetcher(*arguments: Any) -> Any:
        nonlocal iterations
        fetcher = create(*arguments)
        # Data sets may use loaders, too.
        if sys._getframe(1).f_code.co_name == "_worker_loop":
            with contextlib.suppress(Exception):  # the worker works without it
                time_fetcher(fetcher, write, iterations, _index_of_worker, crowded, text)
            iterations += 1
        return fetcher

    kinds.create_fetcher = staticmethod(create_fetcher)


def _index_of_worker() -> int:
    """Return the number of the batch that the worker's loop is about to make."""
    index = sys._getframe(2).f_locals.get("idx")
    return index if isinstance(index, int) else -1


class WorkerText:
    """What a worker tells as text: the data set's functions, timed in a few batches, and its shards."""

    def __init__(self, tell: Callable[[bytes], None]) -> None:
        self._tell = tell
        self._spent: Counter[str] = Counter()
        self._total = 0
        self._usual, self._wait = 0.0, 2
        self._shards: Optional[ShardTimes] = None
        self._texts: Dict[str, Any] = {}

    def begin(self, fetcher: Any) -> None:
        """Begin an iteration over the data set."""
        if not isinstance(fetcher.dataset, IterableDataset):
            return
        name = None
        with contextlib.suppress(Exception):  # another version of its library
            name = shard_name(fetcher)
        if name is not None:
            self._shards = ShardTimes(name) if self._shards is None else self._shards.renamed(name)

    def profile(self, dataset: Any) -> Optional[DatasetProfile]:
        """Return a profile for the next batch, if it is one of those."""
        self._wait -= 1
        if self._wait >= 0 or sys.getprofile() is not None:
            return None
        with contextlib.suppress(Exception):  # attributes of a data set are the user's code
            return DatasetProfile(dataset)
        return None

    def add(self, took: int, profile: Optional[DatasetProfile]) -> None:
        """Add a batch that took these nanoseconds."""
        if profile is None:
            self._usual += 0.1 * (took - self._usual) if self._usual else took
            if self._shards is not None and self._shards.add(took):
                self._write(shards=self._shards.text())
            return
        slower = max(0.0, took - self._usual) / max(self._usual, 1.0)
        self._wait = max(_PROFILED, math.ceil(slower / _PROFILE_SHARE))
        self._total += took
        self._spent.update(profile.spent)
        most = [[name[:60], ns] for name, ns in self._spent.most_common(MOST_FUNCTIONS)]
        self._write(functions=[self._total, most])

    def end(self) -> None:
        """End an iteration over the data set."""
        if self._shards is not None and self._shards.end():
            self._write(shards=self._shards.text())

    def _write(self, **texts: Any) -> None:
        self._texts.update(texts)
        self._tell(json.dumps(self._texts).encode()[:_TEXT_BYTES])


def _crowded_clock() -> Callable[[], int]:
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


def time_fetcher(
    fetcher: Any,
    write: Write,
    iteration: int,
    index_of: Callable[[], int],
    crowded_now: Callable[[], int],
    text: WorkerText,
) -> None:
    """Time what makes batches: the data set's samples, and collating them.

    Args:
        fetcher: of the loader; only this object changes.
        write: receives the records.
        iteration: counts iterations over the data set.
        index_of: returns the number of the batch that is about to be made.
        crowded_now: a clock of the time without a CPU core; -1 if unknown.
        text: receives the time of each batch, and times functions in some.
    """
    text.begin(fetcher)
    fetch, collate, collated = fetcher.fetch, fetcher.collate_fn, 0
    now, cpu_now = monotonic_ns, time.thread_time_ns

    def timed_collate(samples: Any) -> Any:
        nonlocal collated
        began = now()
        batch = collate(samples)
        collated = now() - began
        return batch

    def timed_fetch(indices: Any) -> Any:
        nonlocal collated
        collated, kind = 0, NOTHING
        index = index_of()
        profile = text.profile(fetcher.dataset)
        crowded, cpu, began = crowded_now(), cpu_now(), now()
        try:
            if profile is None:
                batch = fetch(indices)
                kind = BATCH
            else:
                with profile:
                    batch = fetch(indices)
                kind = PROFILED_BATCH
            return batch
        finally:
            ended = now()
            cpu = cpu_now() - cpu
            after = crowded_now()
            crowded = after - crowded if 0 <= crowded <= after else -1
            write(iteration, index, began, ended, collated, cpu, crowded, kind)
            if kind == NOTHING:
                text.end()
            else:
                text.add(ended - began, profile)

    fetcher.collate_fn = timed_collate
    fetcher.fetch = timed_fetch


def time_collating(fetcher: Any, add: Callable[[int], None]) -> None:
    """Time ``collate_fn`` in some batches of a loader without workers.

    It runs on the training thread, which times the whole batch anyway.

    Args:
        fetcher: of the loader; only this object changes.
        add: receives nanoseconds.
    """
    collate, left = fetcher.collate_fn, 1

    def collate_fn(samples: Any) -> Any:
        nonlocal left
        left -= 1
        if left:
            return collate(samples)
        left = _COLLATED
        began = monotonic_ns()
        batch = collate(samples)
        add(monotonic_ns() - began)
        return batch

    fetcher.collate_fn = collate_fn


# -- In the training process ----------------------------------------------------------------------


def why_not(loader: Any) -> Optional[str]:
    """Return why a loader cannot be watched; None if it can."""
    if not isinstance(loader, DataLoader):
        return "the loader is a %s, not a DataLoader" % type(loader).__name__
    if not hasattr(loader, "_get_iterator"):
        return "this DataLoader makes its iterator in another way"
    return None


def told_by_workers(iterators: Iterable[SharedRecords]) -> Dict[str, Any]:
    """Return the longest functions of the data set, with shares of a batch's time, and its shards."""
    whole, spent, shards = 0, Counter(), []  # type: int, Counter[str], List[List[Any]]
    for records in iterators:
        for worker in range(records.workers):
            texts: Dict[str, Any] = {}
            # A text that is being written is not JSON.
            with contextlib.suppress(ValueError):
                texts = json.loads(records.text(worker))
            total, functions = texts.get("functions", (0, []))
            whole += total
            for name, nanoseconds in functions:
                spent[name] += nanoseconds
            shards.append(texts.get("shards", []))
    most = [(name, round(ns / whole, 3)) for name, ns in spent.most_common(MOST_FUNCTIONS)]
    return {"functions": most, "shards": shards_of(shards)}


class LoopOrder(NamedTuple):
    """Which batches the iterations of a loop take."""

    #: Why that is unknown; None if it is known.
    unknown: Optional[str]
    #: Batches that the first iteration takes besides its own, because the loop looks for its end.
    extra: int = 0
    #: All batches of the loop; None if unknown.
    length: Optional[int] = None

    def taken_in(self, batches: int, taken: int) -> int:
        """Return how many batches an iteration takes that uses so many, after those taken before."""
        wanted = batches if taken else batches + self.extra
        return wanted if self.length is None else min(wanted, self.length - taken)


def loop_order(loader: Any, looks_ahead: bool) -> LoopOrder:
    """Return which batches the iterations over a loader take.

    Args:
        loader: the training's.
        looks_ahead: whether the training takes the next batch before it uses one.
    """
    kind, extra = type(loader), int(looks_ahead)
    if kind.__name__ == RAYS_LOADER:
        extra += 1
    elif kind.__name__ == "DataLoaderShard":
        # Accelerate's: it skips the batches that a checkpoint has trained.
        extra += 1 + getattr(loader, "skip_batches", 0)
    elif kind.__iter__ is not DataLoader.__iter__ and not (
        loader_in_pipeline(loader) is not loader and passes_batches_on(loader)
    ):
        what = "a %s may take batches ahead, so the waits for them are unknown"
        return LoopOrder(what % kind.__name__)
    if not getattr(loader, "in_order", True):
        return LoopOrder("batches come out of order, so the waits for them are unknown")
    return LoopOrder(None, extra, batches_in(loader) if extra else None)


class LoopBatches:
    """The batches of one loop over a loader, as its workers make them."""

    def __init__(self, began: int) -> None:
        #: The start of its first batch.
        self.began = began
        #: The batches that training has not taken, by their numbers.
        self.batches: Dict[int, Made] = {}
        #: The number of the next batch, and the batches that were taken.
        self.next = self.taken = 0
        #: When all batches before the next one were ready.
        self.ready = 0
        #: Whether its batches can be the ones that training takes.
        self.matches = True

    def take(self, data: int) -> Optional[Made]:
        """Return the next batch, which was there at this time; None if that cannot be."""
        # Workers of an iterable data set end at different times, which leaves numbers without a batch.
        while self.batches and self.next not in self.batches and self.next < max(self.batches):
            self.next += 1
        batch = self.batches.pop(self.next, None)
        self.matches = self.matches and batch is not None and batch.ended <= data
        if not self.matches:
            return None
        self.next += 1
        self.taken += 1
        return batch

    def after(self, batch: Made, most: int) -> List[int]:
        """Return when the batches after this one, up to so many, were ready."""
        numbers = range(batch.place + 1, batch.place + 1 + most)
        return [self.batches[number].ended for number in numbers if number in self.batches]
