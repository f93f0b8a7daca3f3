"""Join iterations of the user's loop and their reductions into rows, also on asynchronous devices.

What their batches hold is in the rows: samples, elements, and of some batches tokens and padding.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Callable, Deque, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from .guards import read_clocks, take_ready
from .step_log.line_format import StepRow

# More iterations without any reduction are not gradient accumulation.
_MOST_ITERATIONS = 1024

EmitSteps = Callable[[List[StepRow]], None]
#: The shape of an array. Dimensions of symbolic ones may be None.
Shape = Sequence[Any]


def elements_of(shape: Optional[Shape]) -> Optional[int]:
    """Return the numbers in an array with this shape; None if it tells the samples only."""
    if shape is None or len(shape) < 2 or None in shape:
        return None
    return math.prod(map(int, shape))


def total_of(counts: Iterable[Optional[int]]) -> Optional[int]:
    """Return the sum; None where one of them is unknown, or without any."""
    counted = list(counts)
    known = [count for count in counted if count is not None]
    return sum(known) if known and len(known) == len(counted) else None


# -- Count the tokens in some batches, and what pads them ------------------------------------------

#: The tokens of one in so many batches are counted, the same ones on all ranks.
COUNTED = 8
#: What is not known of a batch.
NOT_COUNTED = (-1, -1)
_LENGTHS = ("lengths", "input_lengths")


class Lengths(NamedTuple):
    """The lengths of the sequences in a batch, and the shape of the array that has them."""

    lengths: Any
    shape: Any


def _is_on_host(array: Any) -> bool:
    """Whether an array is NumPy's, or torch's in the host's memory."""
    library = type(array).__module__
    return library == "numpy" or (library == "torch" and array.device.type == "cpu")


def padded_in(
    batch: Any,
    is_usable: Callable[[Any], bool] = _is_on_host,
    shape_of: Callable[[Any], Any] = lambda array: array.shape,
) -> Any:
    """Return what tells the tokens in a batch on the host; None where nothing does.

    That is a mask of all its places, or the lengths of its sequences with the shape of all places.
    Labels that are left out of the loss are no padding: models compute masked tokens and prompts, too.

    Args:
        batch: as a loader gives it.
        is_usable: whether something is an array that can be counted.
        shape_of: returns the shape of one.
    """
    if isinstance(batch, (list, tuple)) and batch:
        batch = batch[0]
    if not isinstance(batch, Mapping):
        return None
    mask: Any = batch.get("attention_mask")
    if mask is None and "token_ids" in batch:
        # KerasHub's; masks of other programs with this name are not 0 where there is padding.
        mask = batch.get("padding_mask")
    # Masks of numbers are added to scores: what they leave out is not 0.
    if is_usable(mask) and len(mask.shape) == 2 and "float" not in str(mask.dtype):
        return mask
    lengths = next((batch[name] for name in _LENGTHS if is_usable(batch.get(name))), None)
    arrays = (array for array in batch.values() if is_usable(array) and len(array.shape) > 1)
    longest = next(arrays, None)
    if lengths is None or longest is None or len(lengths.shape) != 1:
        return None
    return Lengths(lengths, shape_of(longest))


def count_padded(padded: Any) -> Tuple[int, int]:
    """Return the tokens and the padding in what ``padded_in`` has returned; NOT_COUNTED if unknown."""
    if padded is None:
        return NOT_COUNTED
    if not isinstance(padded, Lengths):
        tokens = int((padded != 0).sum())
        return tokens, math.prod(padded.shape) - tokens
    lengths, (samples, longest) = padded.lengths, padded.shape[:2]
    fits = len(lengths) == samples > 0 and int(lengths.min()) >= 0
    if not fits or int(lengths.max()) > longest:
        # Of something else, such as samples of sound before a model shortens them.
        return NOT_COUNTED
    tokens = int(lengths.sum())
    return tokens, samples * longest - tokens


#: Receives the start of an iteration, whether it ends a step, and its batch's tokens and padding.
EmitCounts = Callable[[int, bool, int, int], None]


def emit_counts(padded: Any, begin: int, ends_step: bool, emit: EmitCounts) -> None:
    """Count what ``padded_in`` has returned; nothing where that cannot be counted."""
    with contextlib.suppress(Exception):  # such as an array that its loader has deleted
        counts = count_padded(padded)
        if counts != NOT_COUNTED:
            emit(begin, ends_step, *counts)


class Reduction(NamedTuple):
    """One reduction of gradients, in monotonic nanoseconds; None was not measured."""

    #: Identifies its cause: two reductions with the same cause are one.
    cause: Optional[int]
    ready: Optional[int]
    reduced: Optional[int]
    #: Timestamps of an asynchronous device, read later.
    device_ready: Any = None
    device_reduced: Any = None
    #: Nanoseconds of the step before ``ready`` that this rank spent in collectives.
    waited: int = 0
    #: The same on an asynchronous device: timestamps before and after each collective.
    device_waits: Tuple[Tuple[Any, Any], ...] = ()
    #: The tokens that this rank's experts received in the step; None if it has none.
    routed: Optional[int] = None


class Iteration:
    """One iteration of the loop, while it runs."""

    __slots__ = (
        "begin",
        "clock",
        "data",
        "device_begin",
        "device_data",
        "elements",
        "epoch",
        "micro",
        "reductions",
        "samples",
        "shape",
    )

    def __init__(self, epoch: int, begin: int, clock: int = 0) -> None:
        self.epoch = epoch
        self.begin = begin
        #: Wall minus monotonic clock, as of a recent reading.
        self.clock = clock
        self.data: Optional[int] = None
        self.samples: Optional[int] = None
        self.elements: Optional[int] = None
        #: The shape of the batch, from which samples and elements are counted later; if it has several,
        #: the shapes of all.
        self.shape: Optional[Shape] = None
        self.reductions: List[Reduction] = []
        #: Batches that it fetches before it computes.
        self.micro = 1
        #: As in Reduction.
        self.device_begin: Any = None
        self.device_data: Any = None

    def reduced(self, reduction: Reduction) -> None:
        """Add a reduction; it replaces the previous one if both have the same cause."""
        if self.reductions and self.reductions[-1].cause == reduction.cause:
            self.reductions.pop()
        self.reductions.append(reduction)


class StepAssembler:
    """Makes rows of iterations, and keeps iterations until their step is complete.

    Args:
        counts: whether reductions are seen; otherwise every iteration is a step.
        single: whether there is one rank, with which ready gradients need no reduction.
    """

    def __init__(self, counts: bool, single: bool) -> None:
        self._counts = counts
        self._single = single
        self._iterations: List[StepRow] = []
        self._any_reduction = False

    @property
    def lost_count(self) -> bool:
        """Return whether iterations pile up without any reduction so far."""
        return (
            self._counts and not self._any_reduction and len(self._iterations) >= _MOST_ITERATIONS
        )

    def rows(self, iteration: Iteration, end: int, ready: Optional[int] = None) -> List[StepRow]:
        """Make the rows of a finished iteration: one for each of its reductions.

        The rows have no numbers yet. ``ready`` is the time of the last gradient, for an iteration
        whose reductions are not seen.
        """
        if not self._counts:
            return [self._row(iteration, Reduction(None, ready, None), end)]
        if not iteration.reductions:
            self._iterations.append(self._row(iteration, Reduction(None, None, None), end))
            return []
        self._any_reduction = True
        rows = []
        last = iteration.reductions[-1]
        for reduction in iteration.reductions:
            # Several reductions in one iteration: the time between them belongs to the later one.
            row_end = end if reduction is last else reduction.reduced or end
            row = self._row(iteration, reduction, row_end)
            summed = sum_iterations([*self._iterations, row]) if self._iterations else row
            rows.append(_without_waits(summed, reduction.waited) if reduction.waited else summed)
            self._iterations.clear()
            iteration.begin = iteration.data = row.end
            iteration.micro = 1
            iteration.samples = None if iteration.samples is None else 0
            iteration.elements = None if iteration.elements is None else 0
        return rows

    def give_up(self) -> List[StepRow]:
        """Return the rows of the remaining iterations if there never was a reduction.

        From here on every iteration is a step. Iterations after the last reduction make no step.
        """
        if self._any_reduction or not self._counts:
            return []
        self._counts = False
        rows, self._iterations = self._iterations, []
        return rows

    def _row(self, iteration: Iteration, reduction: Reduction, end: int) -> StepRow:
        ready = _within(reduction.ready, iteration.data, end)
        reduced = (
            ready if self._single else _within(reduction.reduced, ready or iteration.data, end)
        )
        return StepRow(
            0,
            iteration.epoch,
            iteration.begin,
            iteration.data,
            ready,
            reduced,
            end,
            iteration.micro,
            iteration.samples,
            iteration.clock,
            iteration.elements,
        )


def _without_waits(row: StepRow, waited: int) -> StepRow:
    """Move the time in collectives to after the last gradient: it is waiting, not compute."""
    if row.ready is None:
        return row
    return row._replace(ready=max(row.ready - waited, row.data or row.begin))


def _within(timestamp: Optional[int], low: Optional[int], high: int) -> Optional[int]:
    """Return the timestamp if it lies in its iteration; otherwise None."""
    return timestamp if timestamp is not None and (low or 0) <= timestamp <= high else None


# -- Sum iterations of a training loop into steps -------------------------------------------------


class IterationSummer:
    """Sums iterations that only accumulate gradients into steps, and numbers the steps.

    Args:
        next_step: the number of the next row.
        passes_per_step: iterations that make a step.
        iterations_done: how many of those the optimizer had already done before the first row.
    """

    def __init__(self, next_step: int, passes_per_step: int, iterations_done: int = 0) -> None:
        self.next_step = next_step
        self._passes = passes_per_step
        self._iterations: List[StepRow] = []
        self._missing = passes_per_step - iterations_done % passes_per_step

    def step_after(self, iterations: int) -> int:
        """Return the number of the step in which training is after so many more iterations."""
        finished = len(self._iterations) + iterations - self._missing
        return self.next_step if finished < 0 else self.next_step + 1 + finished // self._passes

    def rows(self, iteration: StepRow) -> List[StepRow]:
        """Return the step that an iteration completes; nothing while gradients accumulate."""
        self._iterations.append(iteration)
        if len(self._iterations) < self._missing:
            return []
        row = sum_iterations(self._iterations)._replace(step=self.next_step)
        self._iterations = []
        self._missing = self._passes
        self.next_step += 1
        return [row]


def sum_iterations(iterations: List[StepRow]) -> StepRow:
    """Sum iterations into one step; only the last one ended with a reduction.

    Input waits, samples and elements add up; the other values are the last iteration's.
    """
    first, last = iterations[0], iterations[-1]
    fetched = total_of(
        [
            None if iteration.data is None else iteration.data - iteration.begin
            for iteration in iterations
        ]
    )
    return last._replace(
        begin=first.begin,
        data=None if fetched is None else first.begin + fetched,
        micro=sum(iteration.micro for iteration in iterations),
        samples=total_of(iteration.samples for iteration in iterations),
        clock=first.clock,
        elements=total_of(iteration.elements for iteration in iterations),
    )


# -- Make rows of iterations once an asynchronous device has finished them ------------------------


class DeferredSteps:
    """Takes iterations in order, and makes rows on the thread that drains.

    The host may run ahead of the device, and its work meanwhile costs nothing: a step starts, at the
    earliest, when the device has finished the previous one.

    Args:
        assembler: joins iterations into rows.
        costs: receives the nanoseconds that recording an iteration took.
        emit: receives the rows.
    """

    def __init__(
        self, assembler: StepAssembler, costs: Callable[[int], None], emit: EmitSteps
    ) -> None:
        self._assembler = assembler
        self._costs = costs
        self._emit = emit
        #: A deque: the training thread appends while another takes, without a lock.
        self.waiting: Deque[Any] = deque()
        self._drains = threading.Lock()
        #: The number of reductions so far, and when the device has finished the last step.
        self._count = self._done_before = 0
        #: Whether there were iterations, and never a reduction.
        self.gave_up = False

    def drain(self) -> None:
        """Make rows of the iterations that the device has finished."""
        with self._drains:
            clock = read_clocks()[1]
            for entry in take_ready(self.waiting, self._is_ready):
                self._take(entry, clock)

    def _is_ready(self, entry: Any) -> bool:
        """Return whether the device has finished an iteration."""
        raise NotImplementedError

    def _take(self, entry: Any, clock: int) -> None:
        """Make the rows of an iteration."""
        raise NotImplementedError

    def _begin(self, epoch: int, begin: int, data: int, clock: int) -> Iteration:
        """Return an iteration that starts when the previous step is done."""
        iteration = Iteration(epoch, max(begin, self._done_before), clock)
        iteration.data = max(data, iteration.begin)
        return iteration

    def _end(self, iteration: Iteration, end: int, own_ns: int) -> bool:
        """End an iteration; return whether that ends a step."""
        self._costs(own_ns)
        rows = self._assembler.rows(iteration, end)
        self._emit(rows)
        if self._assembler.lost_count:
            self._give_up()
        return bool(rows)

    def _give_up(self) -> None:
        """Make every iteration a step if there never was a reduction."""
        rows = self._assembler.give_up()
        self._emit(rows)
        self.gave_up = self.gave_up or bool(rows)
