"""Follow the batches of a ``DataLoader``: who made each, how long that took, and how long it waited.

Batches come in the order of their numbers, so the thread that makes rows finds the batch of each
iteration without any work on the training thread.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter, deque
from time import monotonic_ns
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from ..guards import never_raises, own_attributes, patch, while_running
from ..input.input_times import FactPace
from .batches import innermost_loader
from .iterable_sources import LoopOrder, RayTimers, loader_in_pipeline, loop_order, why_not
from .loader_workers import (
    BATCH,
    NOTHING,
    DatasetTimes,
    LoopBatches,
    Made,
    SharedRecords,
    Source,
    WorkerStart,
    told_by,
)

# Epochs that have figures of their own; later ones share theirs.
_EPOCHS = 8
# Each power of two has this many bins: quantiles are within 3 percent.
_BINS = 16


class LoaderFigures:
    """The figures of the loaders that one recording watches, for a fact of its log.

    The training thread calls ``follow``, ``pause`` and ``stop``, the thread that makes rows the others.
    """

    def __init__(self) -> None:
        self._undo: Optional[Callable[[], None]] = None
        self._sources: List[Source] = []
        self._new: Deque[Source] = deque()
        self._pauses: Deque[Tuple[int, int]] = deque(maxlen=16)
        # Where an input probe has fetched the batches, so that training waits for none.
        self._ahead: Deque[Tuple[int, int]] = deque(maxlen=16)
        self._sums = _Sums()
        # Of loaders without workers.
        self._in_process = DatasetTimes()
        #: Why figures are missing, and what the loader is.
        self._reason: Optional[str] = None
        self._about: Dict[str, Any] = {}
        self._rays: Optional[RayTimers] = None
        self._pace = FactPace()
        #: Whether nothing has failed: steps are recorded without figures of the loader.
        self.running = True
        #: Tokens and padding of each batch that the last iteration has used, as far as counted.
        self.counted: List[Tuple[int, int]] = []

    def fail(self, error: Exception) -> None:
        """Give up after an error, and say so in the fact."""
        self.running = False
        self.counted = []
        self._reason = "the loader's figures failed: %r" % error

    @while_running
    def follow(self, loader: Any, looks_ahead: bool = False) -> None:
        """Watch the next iterator of a loader; called before it is made.

        Args:
            loader: of the training's next loop.
            looks_ahead: whether the training takes the next batch before it uses one.
        """
        outer = loader
        loader = loader_in_pipeline(getattr(loader, "base_dataloader", innermost_loader(loader)))
        reason = why_not(loader)
        if reason is not None:
            self._reason = reason
            return
        # Persistent workers go on with the iterator that they have.
        if getattr(loader, "_iterator", None) is not None:
            return
        if "_get_iterator" in own_attributes(loader):
            return
        original = loader._get_iterator

        def get_iterator() -> Any:
            self.stop()
            return self._iterator(loader, original, loop_order(outer, looks_ahead))

        self._undo = patch(loader, "_get_iterator", get_iterator)

    @while_running
    def begin(self, batches: Any) -> None:
        """Follow the iterator of a loader that is no DataLoader, if it shows anything."""
        if not self._about:
            rays = self._rays or RayTimers()
            if rays.begin(batches):
                self._rays = rays

    @never_raises
    def stop(self) -> None:
        """Restore the loader."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def pause(self, began: int, ended: int) -> None:
        """Note a pause of training, in which workers have nothing to do."""
        self._pauses.append((began, ended))

    def goes_on_ahead(self, ahead: bool) -> None:
        """Note that training goes on with an input probe's batches, or with the loader's own again."""
        began, ended = (
            (monotonic_ns(), sys.maxsize) if ahead else (self._ahead.pop()[0], monotonic_ns())
        )
        self._ahead.append((began, ended))

    def _iterator(self, loader: Any, make: Callable[[], Any], order: LoopOrder) -> Any:
        workers = loader.num_workers
        ahead = workers * (loader.prefetch_factor or 1)
        self._reason = order.unknown
        self._about = {
            "workers": workers,
            "prefetch": loader.prefetch_factor if workers else None,
            "persistent": bool(loader.persistent_workers),
            "pinned": bool(loader.pin_memory),
        }
        if not workers:
            source = Source(0, 0, None, order)
            iterator = make()
            with contextlib.suppress(Exception):  # the loader works without it
                source.time_in_process(iterator._dataset_fetcher, self._in_process)
            source.iterations[0] = LoopBatches(monotonic_ns(), order.skipped)
            self._new.append(source)
            return iterator
        init = loader.worker_init_fn
        try:
            records = SharedRecords(workers)
            loader.worker_init_fn = WorkerStart(init, records)
        except Exception as error:  # such as no shared memory
            self._reason = "workers cannot be watched: %r" % error
            return make()
        try:
            iterator = make()
        finally:
            loader.worker_init_fn = init
        self._new.append(Source(workers, ahead, records, order))
        return iterator

    @while_running
    def read(self) -> None:
        """Read what the workers have made, and what other loaders count."""
        if self._rays is not None:
            self._rays.read()
        while self._new:
            # Iterators that were left have nothing more to read.
            self._sources = [*self._sources[-1:], self._new.popleft()]
        for source in self._sources:
            for worker, batch in source.read():
                self._add(source, worker, batch)

    def _add(self, source: Source, worker: int, batch: Made) -> None:
        last = source.last.get(worker)
        source.last[worker] = (batch.iteration, batch.ended)
        idle = None
        if last is not None and last[0] == batch.iteration:
            idle = batch.began - last[1]
            for began, ended in (*self._pauses, *self._ahead):
                idle -= max(0, min(ended, batch.began) - max(began, last[1]))
        if batch.kind == NOTHING:
            self._sums.ended.add(worker)
            return
        self._sums.add(worker, batch, idle)
        if source.why_unmatched:
            return
        iteration = source.iterations.get(batch.iteration)
        if iteration is None:
            for number in [old for old in source.iterations if old < batch.iteration - 1]:
                del source.iterations[number]
            iteration = source.iterations[batch.iteration] = LoopBatches(
                batch.began, source.order.skipped
            )
        iteration.began = min(iteration.began, batch.began)
        if batch.place in iteration.batches or batch.place < iteration.next:
            iteration.matches = False
        iteration.batches[batch.place] = batch

    @while_running
    def taken(self, epoch: int, begin: int, data: Optional[int], batches: int) -> None:
        """Add an iteration of training, which has used batches.

        Args:
            epoch: its epoch.
            begin: when it asked for the first batch.
            data: when it had the last one.
            batches: how many it used.
        """
        self.counted = []
        match = None if data is None else self._iteration_at(data)
        if data is None or match is None:
            return
        source, iteration = match
        if source.why_unmatched:
            self._reason = source.why_unmatched
            return
        self._take(source, iteration, epoch, begin, data, batches)
        self.counted = [*iteration.counted(batches)]

    def _take(
        self,
        source: Source,
        iteration: LoopBatches,
        epoch: int,
        begin: int,
        data: int,
        batches: int,
    ) -> None:
        """Add the batches that an iteration has taken: others than it uses if it looks ahead."""
        is_first = iteration.taken == 0
        waits = not any(began < data < ended for began, ended in tuple(self._ahead))
        batches = source.order.taken_in(batches, iteration.taken)
        if not batches:
            return
        if not source.workers:
            iteration.taken += batches
            self._sums.in_process += batches
            if waits:
                self._sums.add_in_process(epoch, batches, data - begin, is_first, source.timed)
            return
        for number in range(batches):
            if iteration.next not in iteration.batches:
                # Training went on since the last reading.
                self.read()
            batch = iteration.take(data)
            if batch is None:
                self._sums.unmatched += 1
                # They pile up otherwise.
                iteration.batches.clear()
                return
            turn, iteration.ready = iteration.ready - batch.ended, max(iteration.ready, batch.ended)
            if number + 1 < batches or not waits:
                continue
            if is_first:
                self._sums.taken_first(data - begin)
            else:
                self._sums.taken(
                    epoch, batch, max(0, turn), iteration.after(batch, source.ahead), begin, data
                )

    def _iteration_at(self, data: int) -> Optional[Tuple[Source, LoopBatches]]:
        """Return the latest iteration over a loader that had begun at this time."""
        begun = [
            (iteration.began, source, iteration)
            for source in self._sources
            for iteration in source.iterations.values()
            if iteration.began < data
        ]
        return max(begun, key=lambda entry: entry[0])[1:] if begun else None

    def fact(self, now: int, at_the_end: bool) -> Optional[Dict[str, Any]]:
        """Return the figures now and then, and at the end; None in between and without any."""
        shows = self._about or self._reason or self._rays is not None
        if not shows or not self._pace.is_due(now, at_the_end):
            return None
        fact = None if self._rays is None else self._rays.fact()
        if fact is None:
            texts = (text for source in self._sources[-1:] for text in source.texts())
            fact = {**self._about, **self._sums.fact(), "reason": self._reason, **told_by(texts)}
        return {"loader": fact}


def _bin_of(nanoseconds: int) -> int:
    """Return the bin of a time in a histogram."""
    return math.floor(_BINS * math.log2(max(nanoseconds, 1)))


class _Sums:
    """Sums over the batches of a recording."""

    def __init__(self) -> None:
        self.unmatched = 0
        #: Workers whose data has ended, maybe before their first batch.
        self.ended: Set[int] = set()
        #: Batches that the training process has made itself.
        self.in_process = 0
        # By worker: batches, nanoseconds at work, and without work.
        self._batches: Counter[int] = Counter()
        self._busy: Counter[int] = Counter()
        self._idle: Counter[int] = Counter()
        # Of batches after the first one of each worker.
        self._bins: Counter[int] = Counter()
        self._of = Counter()  # type: Counter[str]
        self._worker_ns: Counter[int] = Counter()
        self._worker_counted: Counter[int] = Counter()
        # By epoch: batches, nanoseconds to make them, and waited for them.
        self._epochs: Dict[int, List[int]] = {}

    def add(self, worker: int, batch: Made, idle: Optional[int]) -> None:
        """Add a batch; ``idle`` is the worker's time since the one before, None for its first."""
        took = batch.ended - batch.began
        self._batches[worker] += 1
        if idle is None:
            return
        self._busy[worker] += took
        self._idle[worker] += max(0, idle)
        if batch.kind != BATCH:
            return
        self._worker_ns[worker] += took
        self._worker_counted[worker] += 1
        self._bins[_bin_of(took)] += 1
        self._of["made"] += 1
        self._of["made_ns"] += took
        self._of["collated"] += 1
        self._of["collate_ns"] += batch.collate
        self._of["on_cpu"] += 1
        self._of["cpu_ns"] += batch.cpu
        if batch.crowded >= 0:
            self._of["crowded"] += 1
            self._of["crowded_ns"] += batch.crowded

    def add_in_process(
        self, epoch: int, batches: int, took: int, is_first: bool, timed: Deque[Tuple[int, int]]
    ) -> None:
        """Add batches that the training process has made while it waited for them.

        Args:
            epoch: the epoch of training.
            batches: their number.
            took: nanoseconds for all of them.
            is_first: whether they are the first of an iteration over the loader.
            timed: nanoseconds of collating, and on a core, in some batches.
        """
        while timed:
            collated, on_cpu = timed.popleft()
            for name, value in (("collate_ns", collated), ("cpu_ns", on_cpu)):
                self._of[name] += value
            self._of.update(("collated", "on_cpu"))
        if is_first:
            self.taken_first(took)
            return
        self._bins[_bin_of(took // batches)] += batches
        for name, value in (("made", batches), ("made_ns", took), ("asked", 1), ("empty", 1)):
            self._of[name] += value
        self._of["waited_ns"] += took
        self._add_to_epoch(epoch, took // batches, took)

    def _add_to_epoch(self, epoch: int, took: int, waited: int) -> None:
        epoch_sums = self._epochs.setdefault(min(epoch, _EPOCHS), [0, 0, 0])
        for at, value in enumerate((1, took, waited)):
            epoch_sums[at] += value

    def taken_first(self, waited: int) -> None:
        """Add the first batch of an iteration over the loader, for which workers have to start."""
        self._of["firsts"] += 1
        self._of["first_ns"] += waited

    def taken(
        self, epoch: int, batch: Made, turn: int, later: List[int], asked: int, data: int
    ) -> None:
        """Add a batch that training has taken.

        Args:
            epoch: the epoch of training.
            batch: the batch.
            turn: how long it had to wait for batches before it, nanoseconds.
            later: when batches after it were ready.
            asked, data: when training asked for it, and had it.
        """
        waited = data - asked
        self._of["asked"] += 1
        self._of["waited_ns"] += waited
        self._of["turn_ns"] += turn
        self._of["passed_ns"] += data - max(asked, batch.ended)
        self._of["queued"] += sum(ready <= asked for ready in (batch.ended, *later))
        if batch.ended > asked:
            self._of["empty"] += 1
            first = min(later, default=batch.ended)
            self._of["blocked_ns"] += max(0, batch.ended - max(asked, first))
        self._add_to_epoch(epoch, batch.ended - batch.began, waited)

    def fact(self) -> Dict[str, Any]:
        """Return the figures: microseconds, in means per batch where nothing else is said."""
        of, workers = self._of, sorted(self._batches)
        timed, asked = of["made"], of["asked"]

        def mean(name: str, count: int) -> Optional[float]:
            return round(of[name] / count / 1e3, 1) if count else None

        def share(worker: int) -> Optional[float]:
            whole = self._busy[worker] + self._idle[worker]
            return round(self._busy[worker] / whole, 4) if whole else None

        def made_us(worker: int) -> Optional[float]:
            counted = self._worker_counted[worker]
            return round(self._worker_ns[worker] / counted / 1e3, 1) if counted else None

        return {
            "batches": sum(self._batches.values()) + self.in_process,
            "worker_batches": [self._batches[worker] for worker in workers],
            "workers_without_data": sorted(self.ended - set(workers)),
            "worker_busy": [share(worker) for worker in workers],
            "worker_made_us": [made_us(worker) for worker in workers],
            "made": timed,
            "made_us": mean("made_ns", timed),
            "made_us_quantiles": self._quantiles((0.5, 0.9, 0.99)),
            "collate_us": mean("collate_ns", of["collated"]),
            "cpu_us": mean("cpu_ns", of["on_cpu"]),
            "crowded_us": mean("crowded_ns", of["crowded"]),
            "asked": asked,
            "empty": of["empty"],
            "queued": round(of["queued"] / asked, 2) if asked else None,
            "waited_us": mean("waited_ns", asked),
            "passed_us": mean("passed_ns", asked),
            "blocked_us": mean("blocked_ns", asked),
            "turn_us": mean("turn_ns", asked),
            "iterations": of["firsts"],
            "first_us": mean("first_ns", of["firsts"]),
            "unmatched": self.unmatched,
            "epochs": [
                [epoch, count, round(ns / count / 1e3, 1), round(waited / count / 1e3, 1)]
                for epoch, (count, ns, waited) in sorted(self._epochs.items())
            ],
        }

    def _quantiles(self, shares: Tuple[float, ...]) -> Optional[List[float]]:
        whole, result, count = sum(self._bins.values()), [], 0
        if not whole:
            return None
        bins = iter(sorted(self._bins.items()))
        middle = 0.0
        for share in shares:
            while count < share * whole:
                place, more = next(bins)
                count += more
                middle = 2 ** ((place + 0.5) / _BINS) / 1e3
            result.append(round(middle, 1))
        return result
