"""Record the iterations of a training loop, and make rows of them."""

from __future__ import annotations

import threading
from collections import deque
from copy import copy
from time import monotonic_ns
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from ..guards import read_clocks, take_ready, while_running
from ..loop_recording import LoopRecording
from ..loop_steps import (
    EmitCounts,
    Iteration,
    Reduction,
    StepAssembler,
    elements_of,
    total_of,
)
from ..options import Options
from ..step_log.line_format import ROUTED, StepRow, TokensRow
from .batches import READER, samples_of, shape_in
from .cuda import CudaClock, CudaTimestamp
from .device_steps import DeviceIteration, DeviceSteps, DeviceTimes
from .gradient_timestamps import GradientClock
from .loader_figures import LoaderFigures
from .pytorch_facts import LateFacts

#: The most iterations that wait for the flushing thread.
MOST_WAITING = 2048
# Making rows takes milliseconds; a process forked meanwhile must not wait for it.
_PATIENCE_SECONDS = 2.0
#: An iteration's epoch, its start, the arrival of its batch, the batch's shape (of several batches a
#: list of shapes), its reductions, its end, the time of its last gradient, the nanoseconds that
#: recording it took, its number of batches, and its timestamps of an asynchronous device if there is
#: one. A bare tuple: a named one takes training ten times as long.
FinishedIteration = Tuple[
    int,
    int,
    Optional[int],
    Optional[Sequence[int]],
    List[Reduction],
    int,
    Optional[int],
    int,
    int,
    Optional[DeviceTimes],
]


class IterationRecording(LoopRecording):
    """The iterations of one training, once it has been started."""

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = (
        "_assembler",
        "_device",
        "_device_steps",
        "_finished",
        "_gradients",
        "_gradients_recorded",
        "_iteration",
        "_late_facts",
        "_loader_figures",
        "_own_ns",
        "_probe",
        "_single",
        "_spare",
        "_timestamps",
        "_waiting",
    )

    _assembler: StepAssembler
    _finished: FinishedIterations
    _gradients: GradientClock
    _late_facts: LateFacts
    #: Whether one process trains.
    _single: bool
    #: Of ``_finished``: a deque that this thread appends to.
    _waiting: Deque[FinishedIteration]

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._iteration: Optional[Iteration] = None
        # Its object, also between iterations: it is reused, because it is in the CPU's caches.
        self._spare: Optional[Iteration] = None
        self._loader_figures = LoaderFigures()
        # Nanoseconds of the current iteration that the recorder used.
        self._own_ns = 0
        # An asynchronous device: its clock, and steps that it has not finished.
        self._device: Optional[CudaClock] = None
        self._device_steps: Optional[DeviceSteps] = None
        self._timestamps: Dict[str, Any] = {}
        # Checked in every iteration.
        self._gradients_recorded = False
        self._probe = self._input_probe(READER)

    def fail(self, error: Exception) -> None:
        """Stop recording and warn once."""
        super().fail(error)
        self._iteration = None

    def goes_on_ahead(self, ahead: bool) -> None:
        self._loader_figures.goes_on_ahead(ahead)

    # These run in every step, between the user's own lines: they do only what cannot wait, and catch
    # their own errors.

    def begin_iteration(self, device_begin: Optional[CudaTimestamp] = None) -> None:
        """Start an iteration, on a device at a timestamp if one has just been taken."""
        session = self._session
        if session is None or not session.recording:
            self._iteration = None
            return
        try:
            if len(self._waiting) >= MOST_WAITING:
                self._settle()
            iteration = self._spare
            if iteration is None:
                iteration = self._spare = Iteration(self._epoch, 0)
            begin = iteration.begin = monotonic_ns()
            iteration.epoch, iteration.micro, iteration.reductions = self._epoch, 1, []
            iteration.data = iteration.shape = None
            iteration.device_begin = iteration.device_data = None
            self._iteration = iteration
            self._gradients.forget()
            if self._device is not None:
                iteration.device_begin = device_begin or self._device.timestamp()
            self._own_ns = monotonic_ns() - begin
        except Exception as error:
            self.fail(error)

    def data_arrived(self, batch: Any, shape: Optional[Sequence[int]] = None) -> None:
        """Note that the batch has arrived; ``shape`` is its shape, if it is known already."""
        iteration = self._iteration
        if iteration is None:
            return
        try:
            data = iteration.data = monotonic_ns()
            if self._device is not None:
                iteration.device_data = self._device.timestamp()
            iteration.shape = shape_in(batch) if shape is None else shape
            self._own_ns += monotonic_ns() - data
        except Exception as error:
            self.fail(error)

    def end_iteration(self) -> None:
        iteration, self._iteration = self._iteration, None
        if iteration is None:
            return
        try:
            self._keep(iteration, monotonic_ns())
        except Exception as error:
            self.fail(error)

    def next_iteration(self) -> None:
        """End an iteration and start the next, on a device at the same timestamp of it."""
        iteration, self._iteration = self._iteration, None
        device_end = None
        if iteration is not None:
            try:
                device_end = self._keep(iteration, monotonic_ns(), goes_on=True)
            except Exception as error:
                self.fail(error)
        self.begin_iteration(device_end)

    def _keep(
        self, iteration: Iteration, end: int, goes_on: bool = False
    ) -> Optional[CudaTimestamp]:
        """Queue an iteration for the thread that makes rows; return the device's timestamp of its end.

        Args:
            goes_on: whether the next one begins at once.
        """
        gradients, device_steps = self._gradients, self._device_steps
        on_device: Optional[DeviceTimes] = None
        if device_steps is not None:
            on_device = (
                iteration.device_begin,
                iteration.device_data,
                gradients.device_last,
                gradients.timestamp(),
                goes_on,
            )
            device_steps.read_some(end)
        self._waiting.append(
            (
                iteration.epoch,
                iteration.begin,
                iteration.data,
                iteration.shape,
                iteration.reductions,
                end,
                gradients.last,
                self._own_ns + monotonic_ns() - end,
                iteration.micro,
                on_device,
            )
        )
        return None if on_device is None else on_device[3]

    @while_running
    def drop_iteration(self) -> None:
        """Drop the iteration: the loader is exhausted."""
        self._iteration = None

    @while_running
    def _end_iteration_early(self) -> None:
        """End the iteration where the user left the loop; it counts if it had gradients."""
        iteration = self._iteration
        if iteration is not None and (iteration.reductions or self._gradients.last is not None):
            self.end_iteration()
        self._iteration = None

    def _reduced(self, reduction: Reduction) -> None:
        iteration = self._iteration
        try:
            if iteration is not None:
                iteration.reduced(reduction)
            if not self._gradients_recorded and self.running:
                self._gradients_recorded = True
                self._late_facts.gradients_reduced()
        except Exception as error:
            self.fail(error)

    @while_running
    def _settle(self) -> None:
        """Make rows of finished iterations; the time counts as a cost of recording."""
        assert self._session is not None
        with self._session.cost.outside_iterations():
            self._finished.settle()
            if self._device_steps is not None:
                self._device_steps.read()
                self._device_steps.settle()

    @while_running
    def _give_up(self) -> None:
        assert self._session is not None
        rows = self._assembler.give_up()
        if rows:
            if self._device_steps is None:
                self._emit(rows)
            else:
                self._device_steps.add(None, self._numbered(rows))
            reason = "the optimizer or model that was given never reduced a gradient"
            self._timestamps = {**self._timestamps, "placed": ["data"], "reason": reason}
            reduced = True if self._single else None
            self._session.facts({"gradients_reduced": reduced, "stamps": self._timestamps})

    def _emit_finished(
        self, rows: List[StepRow], own_ns: int, on_device: Optional[DeviceIteration]
    ) -> None:
        """Emit the rows of a finished iteration, on the thread that settles."""
        assert self._session is not None
        self._session.cost.count_iteration(own_ns)
        if on_device is None or self._device_steps is None:
            self._emit(rows)
        else:
            self._device_steps.add(on_device, self._numbered(rows))
        if self._assembler.lost_count:
            self._give_up()

    def _emit_routed(self, begin: int, before: int, tokens: int) -> None:
        session = self._session
        assert session is not None
        session.tokens(TokensRow(session.next_step - before, begin, tokens, 0, ROUTED))

    def _emit(self, rows: List[StepRow]) -> None:
        assert self._session is not None
        for row in self._numbered(rows):
            self._session.step(row)

    def _numbered(self, rows: List[StepRow]) -> List[StepRow]:
        session = self._session
        assert session is not None
        numbered = [row._replace(step=session.next_step + at) for at, row in enumerate(rows)]
        session.next_step += len(rows)
        self._late_facts.rows_recorded(rows)
        return numbered


# -- Make rows of finished iterations, outside of the training thread -----------------------------


class FinishedIterations:
    """Takes iterations from the training thread and makes rows, in order, on the thread that settles.

    The flushing thread settles regularly, and so do callers that need the number of steps. ``emit``
    receives the rows of an iteration, the nanoseconds that recording it took, and the iteration that
    waits for its device. ``count`` receives the tokens and the padding of some batches, with the start
    of the iteration and whether it ends a step. ``route`` receives the tokens of the rank's experts in a
    step, with that start and how many steps before the next one it was. ``samples`` is the user's number
    of samples per batch. ``figures`` receives what the iterations have taken from their loader.
    """

    def __init__(
        self,
        assembler: StepAssembler,
        samples: Optional[int],
        emit: Callable[[List[StepRow], int, Optional[DeviceIteration]], None],
        count: EmitCounts,
        route: Callable[[int, int, int], None],
        figures: LoaderFigures,
    ) -> None:
        self._assembler = assembler
        self._samples = samples
        self._emit = emit
        self._count = count
        self._route = route
        self._figures = figures
        #: A deque: the training thread appends while another takes, without a lock.
        self.waiting: Deque[FinishedIteration] = deque()
        self._settles = threading.Lock()
        self._settled = 0

    def count(self) -> int:
        """Return how many iterations the host has ended; for any thread."""
        return self._settled + len(self.waiting)

    def settle(self) -> None:
        """Make rows of all finished iterations."""
        if not self._settles.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            clock = read_clocks()[1]
            # The batches of these iterations have been made: their records are complete.
            self._figures.read()
            for finished in take_ready(self.waiting):
                epoch, begin, data, shape, reductions, end, ready, own_ns, micro, on_device = (
                    finished
                )
                iteration = Iteration(epoch, begin, clock)
                iteration.micro = micro
                iteration.data, iteration.reductions = data, reductions
                shapes: Any = (shape,) if micro == 1 else shape
                iteration.samples = (
                    self._samples * micro if self._samples else total_of(map(samples_of, shapes))
                )
                iteration.elements = total_of(map(elements_of, shapes))
                self._settled += 1
                self._figures.taken(epoch, begin, data, micro)
                waits = (
                    None if on_device is None else DeviceIteration(copy(iteration), end, on_device)
                )
                rows = self._assembler.rows(iteration, end, ready)
                self._emit(rows, own_ns, waits)
                for before, reduction in zip(range(len(rows), 0, -1), reductions):
                    if reduction.routed is not None:
                        self._route(begin, before, reduction.routed)
                for tokens, padding in self._figures.counted:
                    self._count(begin, bool(rows), tokens, padding)
        finally:
            self._settles.release()
