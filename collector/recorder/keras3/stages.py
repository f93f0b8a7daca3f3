"""The interface of every backend: when the batch arrived, and when the gradients were ready."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from itertools import chain, repeat
from time import monotonic_ns
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..guards import patch, yield_to_training
from ..hangs import Position
from ..input.loader_wrappers import BatchReader, InputProbe, Loop, Memory
from ..keras_common.finished_calls import MOST_WAITING, Call, FinishedCalls
from ..loop_steps import (
    COUNTED,
    EmitCounts,
    IterationSummer,
    elements_of,
    emit_counts,
    padded_in,
    total_of,
)
from ..step_log.line_format import StepRow, TokensRow

# Making rows takes milliseconds; a process forked meanwhile must not wait for it.
_PATIENCE_SECONDS = 2.0

#: One batch: when it was requested and when it arrived, in monotonic nanoseconds, and its shape. In the
#: queue also when the recorder was done with the previous batch; None where unknown. Bare tuples: named
#: ones take training ten times as long to make.
Fetch = Tuple[int, int, Optional[Sequence[Any]]]
TimedFetch = Tuple[int, int, Optional[Sequence[Any]], Optional[int]]
# The most batches that wait to become rows.
_MOST_CALLS = 8 * MOST_WAITING
# Marks that the batches before it belong to no call.
_OF_NO_CALL: Sequence[Any] = []


class KerasFit(NamedTuple):
    """A fit, and how it is recorded."""

    calls: FinishedCalls
    model: Any
    #: Whether timestamps are wanted.
    wanted: bool
    #: Whether one process trains.
    single: bool
    #: The first step, the passes per step, and the passes that the optimizer had counted before.
    counted: Tuple[int, int, int]
    #: Receives the rows.
    emit: Callable[[List[StepRow]], None]
    #: Receives the tokens and the padding of some batches, of the latest step and of any.
    emit_counted: EmitCounts
    emit_padding: Callable[[TokensRow], None]


class Stages:
    """Stages of one ``fit``. Rows lack what a backend cannot timestamp.

    Only the recording calls these methods, and it catches their errors.
    """

    #: Timestamps in the rows, in order.
    placed: Tuple[str, ...] = ()
    #: Why some or all timestamps are missing; None where all are there.
    reason: Optional[str] = None
    #: The meaning of *ready* where it is not the last gradient.
    ready: Optional[str] = None
    #: Whether ``check`` must run after every call from here on, not just now and then.
    attentive = True
    #: The source of further information about a call (see ``timed``).
    saw: Optional[Callable[[Any], Any]] = None
    key: Optional[str] = None
    last_of: Any = None
    #: What an input probe knows about the data.
    reader: BatchReader

    def probe_with(self, probe: InputProbe, length: Optional[int]) -> None:
        """Fetch batches ahead; called before ``install``, with the batches of an epoch."""
        raise NotImplementedError

    def begin_epoch(self) -> None:
        """Start an epoch."""

    def next_step(self) -> int:
        """Return the number of the step that the next call belongs to; only called between calls."""
        raise NotImplementedError

    def install(self, epoch_iterator: Any) -> None:
        """Patch the model to take the timestamps."""

    def remove(self) -> None:
        """Unpatch the model."""

    def function(
        self, train_function: Callable[..., Any], is_timed: Callable[[], bool]
    ) -> Callable[..., Any]:
        """Return the train function to time; ``is_timed`` returns whether a timed call runs."""
        return train_function

    def check(self) -> None:
        """Check the training after the first call, then now and then, or after each if attentive."""
        self.attentive = False

    def abort(self, begin: int) -> None:
        """Handle a call that raised, usually at the end of the data."""

    def position(self, begin: int) -> Position:
        """Return the progress of the step whose call started at ``begin``; for the flushing thread."""
        return Position(begin)

    def drain(self) -> None:
        """Emit the rows of finished calls; the flushing thread calls it too."""

    def settle(self) -> None:
        """Emit the rows of all finished calls; only called between calls."""

    def loader_fact(self, now: int, at_the_end: bool) -> Optional[Dict[str, Any]]:
        """Return figures of the loader now and then, and at the end; for the flushing thread."""
        return None


class FetchedInPython(Stages):
    """Stages of the backends whose batches come through a Python iterator."""

    def __init__(self, fit: KerasFit) -> None:
        self.calls = fit.calls
        self._steps_per_call = int(fit.model.steps_per_execution)
        self.batches = BatchClock(self._steps_per_call)
        self._steps = IterationSummer(*fit.counted)
        self._emit, self._emit_counted = fit.emit, fit.emit_counted
        # What tells the tokens in batches of the last iteration.
        self._padded: List[Any] = []
        self._takes = threading.Lock()

    def probe_with(self, probe: InputProbe, length: Optional[int]) -> None:
        self.batches.probe, self.batches.length = probe, length

    def begin_epoch(self) -> None:
        self.batches.begin_epoch()

    def next_step(self) -> int:
        self.drain()
        with self._takes:
            return self._steps.step_after(len(self.calls))

    def install(self, epoch_iterator: Any) -> None:
        if epoch_iterator is None:
            self.placed, self.reason = (), "this version of Keras hides how it fetches batches"
        else:
            self.batches.install(epoch_iterator)

    def remove(self) -> None:
        self.batches.remove()

    def position(self, begin: int) -> Position:
        # Keras fetches the batch before it calls the train function.
        return Position(begin, begin)

    def check(self) -> None:
        super().check()
        if len(self.calls) >= MOST_WAITING:
            self.drain()

    def abort(self, begin: int) -> None:
        self.batches.forget()

    def drain(self) -> None:
        if not self._takes.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            # Another call may end meanwhile and be incomplete.
            for count, call in enumerate(self.calls.take(self._known()), 1):
                iteration = self._iteration(call)
                if call.own_ns is not None:
                    self.calls.count(call.own_ns + self.batches.own_ns())
                rows = self._steps.rows(iteration)
                self._emit(rows)
                for padded in self._padded:
                    emit_counts(padded, iteration.begin, bool(rows), self._emit_counted)
                yield_to_training(count)
        finally:
            self._takes.release()

    def settle(self) -> None:
        self.drain()

    def _known(self) -> int:
        """Return how many of the waiting calls are complete."""
        return len(self.calls)

    def _iteration(self, call: Call) -> StepRow:
        """Make the iteration of the first complete call, as far as the host sees it."""
        assert call.end is not None
        fetches = self.batches.take(call.end)
        self._padded = self.batches.masks_of(fetches)
        begin, data = wait_of(call, fetches)
        return StepRow(
            0,
            call.epoch,
            begin,
            data if "data" in self.placed else None,
            None,
            None,
            call.end,
            max(1, len(fetches)) if self._steps_per_call != 1 else 1,
            total_of(first_of(shape) for _, _, shape in fetches),
            call.clock_begin,
            total_of(elements_of(shape) for _, _, shape in fetches),
        )


# -- Time how long training waits for batches, by wrapping the iterator of ``fit`` ----------------


class BatchClock:
    """Times the batches of one ``fit``, where Keras fetches them in Python (torch and JAX)."""

    def __init__(self, per_call: int) -> None:
        #: A deque: training appends and another thread takes, without a lock. It is bounded, because
        #: nothing takes after the recording has failed.
        self.fetches: Deque[TimedFetch] = deque(maxlen=_MOST_CALLS * per_call)
        #: When the recorder was done with the latest batch, kept between iterators.
        self.recorded_at: Optional[int] = None
        # Of some batches when they arrived, and what tells their tokens.
        self._padded: Deque[Tuple[int, Any]] = deque(maxlen=_MOST_CALLS)
        # When the latest batch taken arrived, and the cost of recording batches that was not reported
        # yet.
        self._arrived: Optional[int] = None
        self._own_ns = 0
        self._iterator: Any = None
        # Keras' current iterator, and the iterator inside it.
        self._running: Tuple[Any, Any] = (None, None)
        self._restore: Optional[Callable[[], None]] = None
        #: Fetches batches ahead; the batches of an epoch, None if unknown.
        self.probe: Optional[InputProbe] = None
        self.length: Optional[int] = None
        self._loop: Optional[Loop] = None

    def install(self, epoch_iterator: Any) -> None:
        """Time the batches of a fit's epoch iterator; Keras asks it for an iterator every epoch."""
        original: Callable[[], Any] = epoch_iterator._get_iterator
        adapter = getattr(epoch_iterator, "data_adapter", None)

        def get_iterator() -> Iterator[Any]:
            return self._timed(self._probed(adapter, iter(original())), *full_batches(adapter))

        self._iterator = epoch_iterator
        self._restore = patch(epoch_iterator, "_get_iterator", get_iterator)
        running = getattr(epoch_iterator, "_current_iterator", None)
        if running is not None:
            # Early Keras 3 has already asked for one, to build the model with its first batch.
            epoch_iterator._current_iterator = self._timed(running)

    def remove(self) -> None:
        iterator, self._iterator = self._iterator, None
        timed, batches = self._running
        self._running = None, None
        if timed is not None and getattr(iterator, "_current_iterator", None) is timed:
            iterator._current_iterator = batches
        if self._restore is not None:
            self._restore()
        self._restore = None

    def _probed(self, adapter: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """Let the input probe fetch some of the batches ahead."""
        if self.probe is None:
            return batches
        loop = self._loop = self.probe.loop_over(adapter, self.length)
        return batches if loop is None else self.probe.batches_of(loop, batches)

    def begin_epoch(self) -> None:
        """Start an epoch, which may go on with the iterator of the one before."""
        if self._loop is not None:
            self._loop.position = 0

    def _timed(self, batches: Iterator[Any], *known: Any) -> Iterator[Any]:
        timed = timed_batches(batches, self, *known)
        self._running = timed, batches
        return timed

    def forget(self) -> None:
        """Assign the batches since the last call to no call."""
        now = monotonic_ns()
        self.fetches.append((now, now, _OF_NO_CALL, None))

    def take(self, end: int) -> List[Fetch]:
        """Take the batches of the next call, which ended then."""
        waiting = self.fetches
        taken: List[Fetch] = []
        while waiting and waiting[0][1] <= end:
            asked, arrived, shape, recorded_at = waiting.popleft()
            if shape is _OF_NO_CALL:
                taken.clear()
                continue
            taken.append((asked, arrived, shape))
            if recorded_at is not None and self._arrived is not None:
                self._own_ns += recorded_at - self._arrived
            self._arrived = arrived
        return taken

    def note(self, arrived: int, batch: Any) -> None:
        """Keep what tells the tokens of a batch, for the thread that makes rows."""
        with contextlib.suppress(Exception):  # such as a batch with methods of its own
            padded = padded_in(batch)
            if padded is not None:
                self._padded.append((arrived, padded))

    def masks_of(self, fetches: List[Fetch]) -> List[Any]:
        """Return what tells the tokens of these batches, which were the last ones taken."""
        arrivals = {arrived for _, arrived, _ in fetches}
        kept = []
        while self._padded and self._padded[0][0] <= max(arrivals, default=0):
            arrived, padded = self._padded.popleft()
            if arrived in arrivals:
                kept.append(padded)
        return kept

    def own_ns(self) -> int:
        """Return the nanoseconds that recording batches took since the last request."""
        own_ns, self._own_ns = self._own_ns, 0
        return own_ns


def timed_batches(
    batches: Iterator[Any],
    clock: BatchClock,
    full: int = 0,
    shape: Optional[Sequence[int]] = None,
) -> Iterator[Any]:
    """Wrap an iterator in two readings of the clock; the first batches may have a known shape.

    Everything that runs for every batch is in this one function with local variables: training has just
    evicted everything else from the CPU's caches.
    """
    append, now, recorded_at = clock.fetches.append, monotonic_ns, clock.recorded_at
    known: Iterator[Optional[Sequence[Any]]] = chain(repeat(shape, full), repeat(None))
    begin, left = now(), 1
    try:
        for batch in batches:
            end, batch_shape = now(), next(known)
            left -= 1
            if not left:
                left = COUNTED
                clock.note(end, batch)
            if batch_shape is None:
                # The usual kind of batch, without a call, which takes as long as all of this.
                leaf = batch[0] if type(batch) is tuple and batch else batch
                batch_shape = getattr(leaf, "shape", None) or shape_in(batch)
            append((begin, end, batch_shape, recorded_at))
            recorded_at = now()
            yield batch
            # Free it before the next batch arrives.
            batch = None
            begin = now()
    finally:
        clock.recorded_at = recorded_at


def reader_of(memory: Callable[[Any], Memory]) -> BatchReader:
    """Return what an input probe knows about Keras' adapters of data; ``memory`` reads batches."""
    return BatchReader(_why_not_ahead, memory, _batches_ready, in_background=_has_threads)


def _why_not_ahead(adapter: Any, is_named: bool) -> Optional[str]:
    loader = getattr(adapter, "_dataloader", None)
    if loader is None:
        return None
    from ..pytorch.batches import READER as LOADERS

    return LOADERS.why_not(loader, is_named)


def _batches_ready(adapter: Any) -> Optional[int]:
    loader, dataset = getattr(adapter, "_dataloader", None), getattr(adapter, "py_dataset", None)
    if loader is not None:
        from ..pytorch.batches import READER as LOADERS

        return LOADERS.ready(loader)
    if dataset is not None:
        return int(dataset.max_queue_size) if _has_threads(adapter) else 0
    return None


def _has_threads(adapter: Any) -> bool:
    return getattr(adapter, "enqueuer", None) is not None


def full_batches(adapter: Any) -> Tuple[int, Optional[Sequence[int]]]:
    """Return the number of batches at the start that are certainly full, and the start of their shape.

    Reading a batch's shape takes as long as everything else. It is known where Keras cuts the batches
    out of arrays; elsewhere the result is 0.
    """
    if type(adapter).__name__ != "ArrayDataAdapter":
        return 0, None
    try:
        full = int(adapter.num_batches) - bool(adapter.has_partial_batch)
        return full, (int(adapter.batch_size),)
    except Exception:
        # These attributes are not public.
        return 0, None


def samples_in(batch: Any) -> Optional[int]:
    """Return the samples in a batch: the first dimension of the first array that has one."""
    return first_of(shape_in(batch))


def first_of(shape: Optional[Sequence[Any]]) -> Optional[int]:
    """Return the first dimension; None where it is unknown."""
    return shape[0] if shape and isinstance(shape[0], int) else None


def shape_in(batch: Any) -> Optional[Sequence[Any]]:
    """Return the shape of the first array in a batch that has dimensions; None without any.

    The number of samples can be computed from it later; only the shape is read during training.
    """
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next(filter(None, map(shape_in, batch)), None)
    shape: Optional[Sequence[Any]] = getattr(batch, "shape", None)
    return shape or None


def wait_of(call: Call, fetches: List[Fetch]) -> Tuple[int, Optional[int]]:
    """Return when a call of one step began to wait for its batch, and when the batch arrived.

    In monotonic nanoseconds; the arrival is None if unknown. Where Keras fetches before it calls
    the train function, callbacks run in between. Their time is moved before the fetch, with everything
    else between steps.
    """
    if len(fetches) != 1:
        return call.begin, None
    [(asked, arrived, _)] = fetches
    if asked < call.begin:
        return call.begin - (arrived - asked), call.begin
    return call.begin, arrived
