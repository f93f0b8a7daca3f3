"""What the training waits for batches: a clock around the iterator that ``fit`` takes them from."""

from __future__ import annotations

import sys
from time import monotonic_ns
from types import FrameType
from typing import Any, Callable, Iterator, List, Optional, Tuple

# More than the batches of one call.
_MOST_FETCHES = 65_536


#: One batch: when it was asked for and when it was there, in monotonic nanoseconds, and its samples. A
#: bare tuple: one with names takes training ten times as long to make.
Fetch = Tuple[int, int, Optional[int]]


class BatchClock:
    """Times the batches of one ``fit``, where Keras fetches them in Python (torch and JAX)."""

    def __init__(self) -> None:
        #: The batches since somebody took them, and nanoseconds that timing them has taken.
        self.fetches: List[Fetch] = []
        self.own_ns = 0
        self._iterator: Any = None
        self._replaced: Any = None

    def install(self, epoch_iterator: Any) -> None:
        """Time what the epoch iterator of a ``fit`` gives; Keras asks it for an iterator every epoch."""
        original: Callable[[], Any] = epoch_iterator._get_iterator

        def get_iterator() -> "TimedBatches":
            return TimedBatches(original(), self)

        self._iterator, self._replaced = epoch_iterator, get_iterator
        epoch_iterator._get_iterator = get_iterator
        running = getattr(epoch_iterator, "_current_iterator", None)
        if running is not None:
            # Early Keras 3 has already asked for one, to build the model by its first batch.
            epoch_iterator._current_iterator = TimedBatches(running, self)

    def remove(self) -> None:
        iterator, self._iterator = self._iterator, None
        running = getattr(iterator, "_current_iterator", None)
        if isinstance(running, TimedBatches):
            iterator._current_iterator = running.batches
        # Whoever has put something else there meanwhile meant it.
        if iterator is not None and vars(iterator).get("_get_iterator") is self._replaced:
            del iterator._get_iterator
        self._replaced = None

    @property
    def watches(self) -> bool:
        """Whether somebody takes what is timed: nobody does any more when recording has failed."""
        return self._iterator is not None and len(self.fetches) < _MOST_FETCHES

    def forget(self) -> None:
        """What was timed belongs to no call."""
        self.fetches, self.own_ns = [], 0


class TimedBatches:
    """An iterator between two looks at the clock."""

    def __init__(self, batches: Any, clock: BatchClock) -> None:
        self.batches = iter(batches)
        self._clock = clock

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        begin = monotonic_ns()
        batch = next(self.batches)
        end = monotonic_ns()
        clock = self._clock
        if clock.watches:
            clock.fetches.append((begin, end, samples_in(batch)))
            clock.own_ns += monotonic_ns() - end
        return batch


def samples_in(batch: Any) -> Optional[int]:
    """Samples in a batch: the first dimension of the first array that has one; None without any."""
    leaf = batch
    # Nearly always the first leaf tells, and is not looked for for long.
    while isinstance(leaf, (tuple, list)) and leaf:
        leaf = leaf[0]
    shape = getattr(leaf, "shape", None)
    if shape is not None and len(shape) and isinstance(shape[0], int):
        return shape[0]
    return _first_known(batch)


def _first_known(batch: Any) -> Optional[int]:
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next((found for found in map(_first_known, batch) if found is not None), None)
    shape = getattr(batch, "shape", None)
    return shape[0] if shape is not None and len(shape) and isinstance(shape[0], int) else None


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
