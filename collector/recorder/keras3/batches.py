"""What the training waits for batches: a clock around the iterator that ``fit`` takes them from."""

from __future__ import annotations

import sys
from itertools import chain, repeat
from time import monotonic_ns
from types import FrameType
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

# More than the batches of one call.
_MOST_FETCHES = 65_536


#: One batch: when it was asked for and when it was there, in monotonic nanoseconds, and its shape. A
#: bare tuple: one with names takes training ten times as long to make.
Fetch = Tuple[int, int, Optional[Sequence[Any]]]


class BatchClock:
    """Times the batches of one ``fit``, where Keras fetches them in Python (torch and JAX)."""

    # Not a dict: what every batch needs lies side by side.
    __slots__ = ("_iterator", "_replaced", "fetches", "own_ns", "watches")

    def __init__(self) -> None:
        #: The batches since somebody took them, and nanoseconds that timing them has taken.
        self.fetches: List[Fetch] = []
        self.own_ns = 0
        #: Whether somebody takes what is timed: nobody does any more when recording has failed.
        self.watches = False
        self._iterator: Any = None
        self._replaced: Any = None

    def install(self, epoch_iterator: Any) -> None:
        """Time what the epoch iterator of a ``fit`` gives; Keras asks it for an iterator every epoch."""
        self.watches = True
        original: Callable[[], Any] = epoch_iterator._get_iterator
        adapter = getattr(epoch_iterator, "data_adapter", None)

        def get_iterator() -> "TimedBatches":
            return TimedBatches(original(), self, *full_batches(adapter))

        self._iterator, self._replaced = epoch_iterator, get_iterator
        epoch_iterator._get_iterator = get_iterator
        running = getattr(epoch_iterator, "_current_iterator", None)
        if running is not None:
            # Early Keras 3 has already asked for one, to build the model by its first batch.
            epoch_iterator._current_iterator = TimedBatches(running, self)

    def remove(self) -> None:
        self.watches = False
        iterator, self._iterator = self._iterator, None
        running = getattr(iterator, "_current_iterator", None)
        if isinstance(running, TimedBatches):
            iterator._current_iterator = running.batches
        # Whoever has put something else there meanwhile meant it.
        if iterator is not None and vars(iterator).get("_get_iterator") is self._replaced:
            del iterator._get_iterator
        self._replaced = None

    def forget(self) -> None:
        """What was timed belongs to no call."""
        self.fetches, self.own_ns = [], 0


class TimedBatches:
    """An iterator between two looks at the clock, of which the first batches may have a known shape."""

    __slots__ = ("_clock", "_known", "batches")

    def __init__(
        self,
        batches: Any,
        clock: BatchClock,
        full: int = 0,
        shape: Optional[Sequence[int]] = None,
    ) -> None:
        self.batches = iter(batches)
        self._clock = clock
        self._known = chain(repeat(shape, full), repeat(None))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        begin = monotonic_ns()
        batch = next(self.batches)
        end = monotonic_ns()
        clock, shape = self._clock, next(self._known)
        if clock.watches and len(clock.fetches) < _MOST_FETCHES:
            if shape is None:
                # What nearly all batches are; a call takes as long as all of this.
                leaf = batch[0] if type(batch) is tuple and batch else batch
                shape = getattr(leaf, "shape", None) or shape_in(batch)
            clock.fetches.append((begin, end, shape))
            clock.own_ns += monotonic_ns() - end
        return batch


def full_batches(adapter: Any) -> Tuple[int, Optional[Sequence[int]]]:
    """How many batches, from the first, are full for certain, and what the shape of these begins with.

    To ask one for its shape takes as long as all the rest. 0 where nobody knows, as Keras does where it
    cuts the batches out of arrays itself.
    """
    if type(adapter).__name__ != "ArrayDataAdapter":
        return 0, None
    try:
        return int(adapter.num_batches) - bool(adapter.has_partial_batch), (
            int(adapter.batch_size),
        )
    except Exception:
        # Nothing of that is promised.
        return 0, None


def samples_in(batch: Any) -> Optional[int]:
    """Samples in a batch: the first dimension of the first array that has one."""
    return first_of(shape_in(batch))


def first_of(shape: Optional[Sequence[Any]]) -> Optional[int]:
    """The first dimension; None where nobody knows it."""
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
