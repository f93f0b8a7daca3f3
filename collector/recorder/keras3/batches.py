"""What the training waits for batches: a clock around the iterator that ``fit`` takes them from."""

from __future__ import annotations

import sys
from collections import deque
from itertools import chain, repeat
from time import monotonic_ns
from types import FrameType
from typing import Any, Callable, Deque, Iterator, List, Optional, Sequence, Tuple

from ..tf_keras.calls import MOST_WAITING

#: One batch: when it was asked for and when it was there, in monotonic nanoseconds, and its shape. As it
#: waits, also when the recording was through with the one before it; None where it is not known. Bare
#: tuples: one with names takes training ten times as long to make.
Fetch = Tuple[int, int, Optional[Sequence[Any]]]
TimedFetch = Tuple[int, int, Optional[Sequence[Any]], Optional[int]]

# So many calls may wait until rows are made of them, and some more.
_MOST_CALLS = 8 * MOST_WAITING

# The shape of what stands after batches that belong to no call.
_OF_NO_CALL: Sequence[Any] = []


class BatchClock:
    """Times the batches of one ``fit``, where Keras fetches them in Python (torch and JAX)."""

    def __init__(self, per_call: int) -> None:
        #: A deque: training appends while another thread takes, without a lock. When recording has
        #: failed, none are taken any more.
        self.fetches: Deque[TimedFetch] = deque(maxlen=_MOST_CALLS * per_call)
        #: When the recording was through with the last batch, between iterators.
        self.over: Optional[int] = None
        # When the batch that was taken last was there, and what recording batches took that nobody has
        # asked for yet.
        self._there: Optional[int] = None
        self._own_ns = 0
        self._iterator: Any = None
        # The iterator that Keras has now, and what it gives the batches of.
        self._running: Tuple[Any, Any] = (None, None)
        self._replaced: Any = None

    def install(self, epoch_iterator: Any) -> None:
        """Time what the epoch iterator of a ``fit`` gives; Keras asks it for an iterator every epoch."""
        original: Callable[[], Any] = epoch_iterator._get_iterator
        adapter = getattr(epoch_iterator, "data_adapter", None)

        def get_iterator() -> Iterator[Any]:
            return self._timed(iter(original()), *full_batches(adapter))

        self._iterator, self._replaced = epoch_iterator, get_iterator
        epoch_iterator._get_iterator = get_iterator
        running = getattr(epoch_iterator, "_current_iterator", None)
        if running is not None:
            # Early Keras 3 has already asked for one, to build the model by its first batch.
            epoch_iterator._current_iterator = self._timed(running)

    def remove(self) -> None:
        iterator, self._iterator = self._iterator, None
        timed, batches = self._running
        self._running = None, None
        if timed is not None and getattr(iterator, "_current_iterator", None) is timed:
            iterator._current_iterator = batches
        # Something else was put there meanwhile: leave it.
        if iterator is not None and vars(iterator).get("_get_iterator") is self._replaced:
            del iterator._get_iterator
        self._replaced = None

    def _timed(self, batches: Iterator[Any], *known: Any) -> Iterator[Any]:
        timed = timed_batches(batches, self, *known)
        self._running = timed, batches
        return timed

    def forget(self) -> None:
        """What was timed since the last call belongs to none."""
        now = monotonic_ns()
        self.fetches.append((now, now, _OF_NO_CALL, None))

    def take(self, end: int) -> List[Fetch]:
        """The batches of the first call that has taken none, which ended then."""
        waiting = self.fetches
        taken: List[Fetch] = []
        while waiting and waiting[0][1] <= end:
            asked, there, shape, over = waiting.popleft()
            if shape is _OF_NO_CALL:
                taken.clear()
                continue
            taken.append((asked, there, shape))
            if over is not None and self._there is not None:
                self._own_ns += over - self._there
            self._there = there
        return taken

    def own_ns(self) -> int:
        """Nanoseconds that recording batches took, up to the last but one taken, since last asked."""
        own_ns, self._own_ns = self._own_ns, 0
        return own_ns


def timed_batches(
    batches: Iterator[Any],
    clock: BatchClock,
    full: int = 0,
    shape: Optional[Sequence[int]] = None,
) -> Iterator[Any]:
    """An iterator between two looks at the clock, of which the first batches may have a known shape.

    What is done for every batch stands here, in one function with its variables beside it: training has
    just driven everything else out of the processor's caches.
    """
    there, now, over = clock.fetches.append, monotonic_ns, clock.over
    known: Iterator[Optional[Sequence[Any]]] = chain(repeat(shape, full), repeat(None))
    begin = now()
    try:
        for batch in batches:
            end, found = now(), next(known)
            if found is None:
                # What nearly all batches are; a call takes as long as all of this.
                leaf = batch[0] if type(batch) is tuple and batch else batch
                found = getattr(leaf, "shape", None) or shape_in(batch)
            there((begin, end, found, over))
            over = now()
            yield batch
            # It need not be kept until the next one is there.
            batch = None
            begin = now()
    finally:
        clock.over = over


def full_batches(adapter: Any) -> Tuple[int, Optional[Sequence[int]]]:
    """How many batches, from the first, are full for certain, and what the shape of these begins with.

    To ask one for its shape takes as long as all the rest. 0 where it is not known, as Keras does
    where it cuts the batches out of arrays itself.
    """
    if type(adapter).__name__ != "ArrayDataAdapter":
        return 0, None
    try:
        full = int(adapter.num_batches) - bool(adapter.has_partial_batch)
        return full, (int(adapter.batch_size),)
    except Exception:
        # Nothing of that is promised.
        return 0, None


def samples_in(batch: Any) -> Optional[int]:
    """Samples in a batch: the first dimension of the first array that has one."""
    return first_of(shape_in(batch))


def first_of(shape: Optional[Sequence[Any]]) -> Optional[int]:
    """The first dimension; None where it is not known it."""
    return shape[0] if shape and isinstance(shape[0], int) else None


def shape_in(batch: Any) -> Optional[Sequence[Any]]:
    """The shape of the first array in a batch that has dimensions; None without any.

    This is all of it that training needs to wait for.
    """
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next(filter(None, map(shape_in, batch)), None)
    shape: Optional[Sequence[Any]] = getattr(batch, "shape", None)
    return shape or None


def fit_of(model: Any) -> Optional[FrameType]:
    """The frame of the model's ``fit`` on this thread; None where this thread is not in one."""
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        if (
            frame.f_code.co_name == "fit"
            and "epoch_iterator" in frame.f_code.co_varnames
            and frame.f_locals.get("self") is model
        ):
            return frame
        frame = frame.f_back
    return None
