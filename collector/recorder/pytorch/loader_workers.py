"""Time every batch of a ``DataLoader`` where it is made: in its workers, or in this process.

Each worker writes a record per batch into memory that it shares with the training process.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import math
import multiprocessing
import os
import struct
import sys
import time
from collections import Counter, deque
from time import monotonic_ns
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch.utils.data import IterableDataset

from ..loop_steps import COUNTED, NOT_COUNTED, count_padded, padded_in
from .iterable_sources import LoopOrder, ShardTimes, shard_name, shards_of
from .loader_pipeline import DatasetProfile, crowded_clock

# Records that one worker may write between two readings.
_ROOM = 512
# One in so many batches of a worker is timed function by function, in at most this share of its time.
_PROFILED, _PROFILE_SHARE = 32, 0.01
# One in so many batches of a loader without workers is timed, in addition to the wait for it.
_TIMED_IN_PROCESS = 8
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
    #: Tokens and padding; -1 where they are not counted.
    tokens: int
    padding: int


_RECORD = struct.Struct("=11q")
_NUMBER = struct.Struct("=q")
_TEXT = struct.Struct("=%ds" % _TEXT_BYTES)
#: Kinds of records: a batch, one whose functions were timed, an exception or the end of the data.
BATCH, PROFILED_BATCH, NOTHING = 0, 1, 2
Write = Callable[[int, int, int, int, int, int, int, int, int, int], None]


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
    create, write, crowded = kinds.create_fetcher, records.writer(worker), crowded_clock()
    times = DatasetTimes(lambda text: records.write_text(worker, text))
    iterations = 0

    def create_fetcher(*arguments: Any) -> Any:
        nonlocal iterations
        fetcher = create(*arguments)
        # Data sets may use loaders, too.
        if sys._getframe(1).f_code.co_name == "_worker_loop":
            with contextlib.suppress(Exception):  # the worker works without it
                time_fetcher(
                    fetcher, write, _count_some, iterations, _index_of_worker, crowded, times
                )
            iterations += 1
        return fetcher

    kinds.create_fetcher = staticmethod(create_fetcher)


def _count_some(number: int, batch: Any) -> Tuple[int, int]:
    return NOT_COUNTED if number % COUNTED else count_padded(padded_in(batch))


def _index_of_worker() -> int:
    """Return the number of the batch that the worker's loop is about to make."""
    index = sys._getframe(2).f_locals.get("idx")
    return index if isinstance(index, int) else -1


class DatasetTimes:
    """What a process tells as text: the data set's functions, timed in a few batches, and its shards.

    Args:
        tell: receives the text, of a worker; None in the training process, which reads it here.
    """

    def __init__(self, tell: Optional[Callable[[bytes], None]] = None) -> None:
        self._tell = tell
        self.text = b""
        self._spent: Counter[str] = Counter()
        self._total = 0
        self._usual, self._wait = 0.0, 2
        self._shards: Optional[ShardTimes] = None
        self._texts: Dict[str, Any] = {}

    def begin(self, fetcher: Any) -> None:
        """Begin an iteration over the data set; workers tell its shards."""
        if self._tell is None or not isinstance(fetcher.dataset, IterableDataset):
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
        self.text = json.dumps(self._texts).encode()[:_TEXT_BYTES]
        if self._tell is not None:
            self._tell(self.text)


def time_fetcher(
    fetcher: Any,
    write: Write,
    count: Callable[[int, Any], Tuple[int, int]],
    iteration: int,
    index_of: Callable[[], int],
    crowded_now: Callable[[], int],
    times: DatasetTimes,
    one_in: int = 1,
) -> None:
    """Time what makes batches: the data set's samples, and collating them.

    Args:
        fetcher: of the loader; only this object changes.
        write: receives the records.
        count: returns the tokens and the padding of a batch with this number.
        iteration: counts iterations over the data set.
        index_of: returns the number of the batch that is about to be made.
        crowded_now: a clock of the time without a CPU core; -1 if unknown.
        times: receives the time of each batch, and times functions in some.
        one_in: one in so many batches is timed.
    """
    times.begin(fetcher)
    fetch, collate, collated, left = fetcher.fetch, fetcher.collate_fn, 0, 1
    now, cpu_now = monotonic_ns, time.thread_time_ns

    def timed_collate(samples: Any) -> Any:
        nonlocal collated
        began = now()
        batch = collate(samples)
        collated = now() - began
        return batch

    def timed_fetch(indices: Any) -> Any:
        nonlocal collated, left
        left -= 1
        if left:
            return fetch(indices)
        left, collated, kind, batch = one_in, 0, NOTHING, None
        index = index_of()
        profile = times.profile(fetcher.dataset)
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
            counts = NOT_COUNTED
            with contextlib.suppress(Exception):  # such as a batch with methods of its own
                counts = count(index, batch)
            write(iteration, index, began, ended, collated, cpu, crowded, kind, *counts)
            if kind == NOTHING:
                times.end()
            else:
                times.add(ended - began, profile)

    fetcher.collate_fn = timed_collate
    fetcher.fetch = timed_fetch


# -- In the training process ----------------------------------------------------------------------


def told_by(processes: Iterable[bytes]) -> Dict[str, Any]:
    """Return the longest functions of the data set, with shares of a batch's time, and its shards.

    Args:
        processes: the text of each process that makes batches, in the order of the workers.
    """
    whole, spent, shards = 0, Counter(), []  # type: int, Counter[str], List[List[Any]]
    for text in processes:
        told: Dict[str, Any] = {}
        # A text that is being written is not JSON.
        with contextlib.suppress(ValueError):
            told = json.loads(text)
        total, functions = told.get("functions", (0, []))
        whole += total
        for name, nanoseconds in functions:
            spent[name] += nanoseconds
        shards.append(told.get("shards", []))
    most = [(name, round(ns / whole, 3)) for name, ns in spent.most_common(MOST_FUNCTIONS)]
    return {"functions": most, "shards": shards_of(shards)}


class LoopBatches:
    """The batches of one loop over a loader, as its workers make them."""

    def __init__(self, began: int, skipped: int) -> None:
        #: The start of its first batch.
        self.began = began
        #: Batches that training has used, or skipped.
        self.used = skipped
        #: Of some batches that it has not used: the number, and the tokens and the padding, or in the
        #: training process what tells them.
        self.padded: Deque[Tuple[int, Any]] = deque(maxlen=_ROOM)
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
        if batch is None or not self.matches:
            return None
        self.next += 1
        if batch.tokens >= 0:
            self.padded.append((self.taken, (batch.tokens, batch.padding)))
        self.taken += 1
        return batch

    def counted(self, batches: int) -> Iterator[Tuple[int, int]]:
        """Yield the tokens and the padding of the next batches that training uses, if counted."""
        self.used += batches
        while self.padded and self.padded[0][0] < self.used:
            padded = self.padded.popleft()[1]
            counts = padded if type(padded) is tuple else count_padded(padded)
            if counts != NOT_COUNTED:
                yield counts

    def after(self, batch: Made, most: int) -> List[int]:
        """Return when the batches after this one, up to so many, were ready."""
        numbers = range(batch.place + 1, batch.place + 1 + most)
        return [self.batches[number].ended for number in numbers if number in self.batches]


class Source:
    """The batches that one iterator of a loader makes."""

    def __init__(
        self,
        workers: int,
        ahead: int,
        records: Optional[SharedRecords],
        order: LoopOrder,
    ) -> None:
        self.workers = workers
        self.order = order
        #: The most batches that are made ahead.
        self.ahead = ahead
        self.records = records
        #: Nanoseconds of collating, and on a core, in some batches of this process; its functions.
        self.timed: Deque[Tuple[int, int]] = deque(maxlen=1024)
        self._functions: Optional[DatasetTimes] = None
        self.iterations: Dict[int, LoopBatches] = {}
        #: By worker: its last iteration, and the end of its last batch.
        self.last: Dict[int, Tuple[int, int]] = {}

    @property
    def why_unmatched(self) -> Optional[str]:
        """Return why it is unknown which batch an iteration of training takes; None if it is known."""
        if self.records is not None and self.records.lost:
            return "batches came faster than they could be followed, so some waits are unknown"
        return self.order.unknown

    def time_in_process(self, fetcher: Any, functions: DatasetTimes) -> None:
        """Time some batches that the training process makes itself, and their functions."""

        def add(*record: int) -> None:
            *_, collated, on_cpu, _, kind, _, _ = record
            if kind == BATCH:
                self.timed.append((collated, on_cpu))

        def keep(_: int, batch: Any) -> Tuple[int, int]:
            """Keep the mask for the thread that makes rows: this is the training's."""
            number, padded = next(numbers), padded_in(batch)
            if padded is not None:
                self.iterations[0].padded.append((number, padded))
            return NOT_COUNTED

        self._functions, numbers = functions, itertools.count(0, _TIMED_IN_PROCESS)
        time_fetcher(fetcher, add, keep, 0, lambda: 0, lambda: -1, functions, _TIMED_IN_PROCESS)

    def texts(self) -> Iterator[bytes]:
        """Yield what each process tells of the data set's functions."""
        if self.records is not None:
            yield from map(self.records.text, range(self.workers))
        if self._functions is not None:
            yield self._functions.text

    def read(self) -> Iterator[Tuple[int, Made]]:
        """Yield new records with their workers."""
        for worker in range(self.workers if self.records is not None else 0):
            assert self.records is not None
            for batch in self.records.read(worker):
                yield worker, batch
