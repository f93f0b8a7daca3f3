"""Record a custom training loop: the user defines its steps."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import deque
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any, Callable, Deque, Iterator, Optional, Type

import tensorflow as tf

from ..base_recording import BaseRecording
from ..guards import JUMP_NS, never_raises, read_clocks, while_running
from ..hangs import Position
from ..job.job_facts import known
from ..job.world import is_elastic, world_of_training
from ..keras_common.finished_calls import CHECK_INTERVAL_NS, MOST_WAITING
from ..loop_steps import COUNTED, elements_of, emit_counts, total_of
from ..options import Options
from ..session import Session
from ..step_log.line_format import EPOCH, StepRow
from .gradient_marks import (
    BEGIN,
    DATA,
    END,
    GRADIENTS,
    OWN_NS,
    PLACES,
    REDUCED,
    SHAPES,
    FinishedStep,
    Marks,
    RunningStep,
    StepMarks,
    TracedMarks,
    counted_on_host,
)
from .instrument import gradient_facts
from .tf_keras_facts import model_facts, parameters, passes_counted

# The names of marks in a step log.
_COLUMNS = {DATA: "data", GRADIENTS: "ready", REDUCED: "reduced"}


class CustomLoop(BaseRecording):
    """Writes the steps of one loop to the log; a context manager for each step.

    No method raises.
    """

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = (
        "_batch_kind",
        "_check_at",
        "_clock",
        "_end_without_recorder",
        "_epoch",
        "_finished",
        "_lock",
        "_marks",
        "_model",
        "_nested",
        "_optimizer",
        "_recorded_at",
        "_records",
        "_sequence",
        "_single",
        "_step",
        "_traced",
        "is_elastic",
    )

    why_never_ahead = "a custom loop fetches its batches itself"

    def __init__(self, model: Any, optimizer: Any, traced: TracedMarks, options: Options) -> None:
        super().__init__(options)
        #: Whether the ranks may change between two steps.
        self.is_elastic = is_elastic(os.environ)
        self._model = model
        self._optimizer = optimizer or getattr(model, "optimizer", None)
        self._traced = traced
        self._marks = Marks(traced)
        # What each step needs is in this object: others would be evicted, too. The type of eager
        # tensors, and that of a sequence in which they are passed, after the host's first mark of data.
        self._batch_kind: Optional[type] = None
        self._sequence: Optional[type] = None
        # Whether steps are recorded, as of the latest check.
        self._records = False
        # Steps within the current one that have not ended: they are part of it.
        self._nested = 0
        # The current step; None where none is recorded.
        self._step: Optional[RunningStep] = None
        # Wall minus monotonic clock, as of the latest rows.
        self._clock = read_clocks()[1]
        # When the recorder was done with the previous step, and when the step of the latest row would
        # have ended without the recorder.
        self._recorded_at: Optional[int] = None
        self._end_without_recorder: Optional[int] = None
        # When the recorder next has work to do after a step.
        self._check_at = 0
        self._epoch = -1
        # Finished steps that are not rows yet.
        self._finished: Deque[RunningStep] = deque()
        self._lock = threading.Lock()

    @never_raises
    def start(self) -> None:
        """Open the log."""
        world = world_of_training()
        self._single = world.size == 1
        facts = {
            **model_facts(self._trained(), world.size),
            "stamps": {"placed": [], "reason": None},
        }
        counted = passes_counted(self._optimizer)
        session = self._open_session(world, facts, counted, self._settle, self._position)
        self._records = session.recording

    def _position(self) -> Position:
        """Return the progress of the step, as far as the host's marks show it."""
        step = self._step
        if step is None:
            return Position()
        return Position(step[BEGIN], *(step[place] for place in PLACES.values()))

    @never_raises
    def stop(self) -> None:
        """Write what is left and close the log."""
        if self._session is not None:
            if self._check_at:
                self._check()
            self._records = False
            self._settle()
            self._count(self._session, self._recorded_at)
            self._session.close(passes_counted(self._optimizer))

    def _trained(self) -> Any:
        """Return an object with the model's facts and the optimizer, which only compiled models have."""
        model = self._model
        return SimpleNamespace(
            optimizer=self._optimizer,
            name=getattr(model, "name", None),
            built=getattr(model, "built", False),
            count_params=getattr(model, "count_params", None),
        )

    # -- steps -----------------------------------------------------------------------------------

    # These run in every step, between the user's own lines: they do only what cannot wait, and catch
    # their own errors. Names of other modules are default arguments: looking up a global name there
    # takes as long as everything else.

    def __enter__(
        self, now: Callable[[], int] = monotonic_ns, begin_at: int = BEGIN, cost_at: int = OWN_NS
    ) -> None:
        """Start a step; a nested step is part of the outer one."""
        if self._step is not None:
            self._nested += 1
            return
        if not self._records:
            return
        entered = now()
        # The fields of FinishedStep.
        step = [self._epoch, None, None, None, None, None, (), None, 0, self._recorded_at]
        self._step = step
        begin = step[begin_at] = now()
        step[cost_at] = begin - entered

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Any,
        trace: Any,
        now: Callable[[], int] = monotonic_ns,
        end_at: int = END,
    ) -> None:
        """End the step; drop it if it raised."""
        if self._nested:
            self._nested -= 1
            return
        step = self._step
        if step is None:
            return
        self._step = None
        if kind is not None:
            return
        end = step[end_at] = now()
        self._finished.append(step)
        if end >= self._check_at:
            self._check()
        self._recorded_at = now()

    def _check(self) -> None:
        """Run the work that only some steps need."""
        self._records = self.running
        if not self._records:
            self._finished.clear()
            return
        try:
            if self._marks.has_news:
                self._record_facts()
            if len(self._finished) >= MOST_WAITING:
                self._settle()
        except Exception as error:  # no error may reach training
            self.fail(error)
        self._check_at = monotonic_ns() + CHECK_INTERVAL_NS

    @never_raises
    def _settle(self) -> None:
        """Make rows of the finished steps; the flushing thread calls it too."""
        session = self._session
        if session is None:
            return
        if not session.recording:
            self._finished.clear()
            return
        with self._lock:
            # Take the steps first: then the marks of their graphs are complete.
            finished = [FinishedStep(*self._finished.popleft()) for _ in range(len(self._finished))]
            if not finished:
                return
            self._marks.read()
            before, clock = self._clock, read_clocks()[1]
            self._clock = clock
            if abs(clock - before) > JUMP_NS:
                # Someone set the clock: the marks before and after that cannot be separated.
                self._marks.forget_read()
            begins = [step.begin for step in finished[1:]]
            for step, next_begin in zip(finished, [*begins, None]):
                self._count(session, step.recorded_at)
                self._end_without_recorder = step.end - step.own_ns
                marks, number = self._marks.marks_of(step, next_begin, clock), session.next_step
                session.step(self._row(number, step, marks))
                if step.padded is not None:
                    padded = known(functools.partial(counted_on_host, step.padded))
                    emit_counts(padded, step.begin, True, self._emit_counted)
                elif marks.batches and not number % COUNTED:
                    batch = marks.batches[0]
                    if batch.tokens is not None and batch.padding is not None:
                        self._emit_counted(step.begin, True, batch.tokens, batch.padding)

    def _count(self, session: Session, recorded_at: Optional[int]) -> None:
        """Count the cost of recording the step that became a row last."""
        if recorded_at is not None and self._end_without_recorder is not None:
            session.cost.count_iteration(recorded_at - self._end_without_recorder)
            self._end_without_recorder = None

    def _row(self, number: int, step: FinishedStep, marks: StepMarks) -> StepRow:
        reduced = marks.reduced
        if self._single:
            # One process: ready gradients need no reduction.
            reduced = marks.gradients
        samples = total_of(int(shape[0]) for shape in step.shapes)
        elements = total_of(map(elements_of, step.shapes))
        if not step.shapes:
            # Marked in a graph.
            samples = total_of(batch.samples for batch in marks.batches)
            elements = total_of(batch.elements for batch in marks.batches)
        return StepRow(
            number,
            max(step.epoch, 0),
            step.begin,
            marks.data,
            marks.gradients,
            reduced,
            step.end,
            1,
            self._options.batch_size or samples,
            self._clock,
            elements,
        )

    # Not decorated, as in StepLogger: only _mark is hidden from autograph. What is seldom is elsewhere:
    # the size of the code counts, too.
    def mark(
        self,
        name: str,
        tensors: Any,
        now: Callable[[], int] = monotonic_ns,
        kind_of: Callable[[Any], type] = type,
        data: str = DATA,
        data_at: int = PLACES[DATA],
        shapes_at: int = SHAPES,
        cost_at: int = OWN_NS,
    ) -> None:
        """Set a mark now or, in a trace, in every run of the graph."""
        entered = now()
        step = self._step
        first = tensors[0] if kind_of(tensors) is self._sequence and tensors else tensors
        # Asking TensorFlow whether it traces a graph takes longer than the rest of a step.
        if name == data and kind_of(first) is self._batch_kind and step is not None:
            # As ``Marks.mark`` does after its first mark.
            if step[data_at] is None:
                step[data_at] = entered
            # Faster than ``shape``. Marks have checked that the method exists.
            shape = first._shape_tuple()
            if shape:
                step[shapes_at] += (shape,)
        else:
            self._mark_otherwise(name, tensors, entered)
        if step is not None:
            step[cost_at] += now() - entered

    def _mark_otherwise(self, name: str, tensors: Any, entered: int) -> None:
        """Set another mark than that of data, its first mark, one of other data, or one in a trace."""
        step, marks = self._step, self._marks
        first = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
        if name == DATA or name not in marks.on_host or type(first) is not marks.eager:
            self._mark(name, tensors)
        elif step is not None:
            step[PLACES[name]] = entered

    @tf.autograph.experimental.do_not_convert
    @while_running
    def _mark(self, name: str, tensors: Any) -> None:
        traced, marks = self._traced, self._marks
        if name == GRADIENTS and tensors is not None and not traced.gradients:
            traced.gradients = gradient_facts(tf.nest.flatten(tensors), None)
        marks.mark(name, tensors, self._step)
        if name == DATA and DATA in marks.on_host:
            kind = type(tensors)
            self._sequence = kind if kind in (tuple, list) else None
            self._batch_kind = marks.eager

    @while_running
    def watch(self, tape: Any) -> None:
        """Patch a tape so that it marks its gradients."""
        name = "_allreduce_grads" if hasattr(tape, "_allreduce_grads") else "gradient"
        original = getattr(tape, name)

        # Not decorated, so that autograph treats its callees as it would without it.
        def reduced(gradients: Any, *args: Any, **kwargs: Any) -> Any:
            self.mark(GRADIENTS, gradients)
            reduced_gradients = original(gradients, *args, **kwargs)
            self.mark(REDUCED, reduced_gradients)
            return reduced_gradients

        def gradient(*args: Any, **kwargs: Any) -> Any:
            gradients = original(*args, **kwargs)
            self.mark(GRADIENTS, gradients)
            return gradients

        setattr(tape, name, gradient if name == "gradient" else reduced)

    def _record_facts(self) -> None:
        """Record what the steps have shown."""
        marks, session = self._marks, self._session
        assert session is not None
        marks.has_news = False
        placed = [_COLUMNS[name] for name in _COLUMNS if name in marks.placed]
        if self._single and "ready" in placed and "reduced" not in placed:
            placed.append("reduced")
        missing = [name for name in (DATA, GRADIENTS, REDUCED) if _COLUMNS[name] not in placed]
        reason = marks.trouble
        if reason is None and missing:
            reason = "no mark of %s was seen since the log began" % ", ".join(missing)
        session.facts(
            {
                **self._traced.gradients,
                "batch_size": self._options.batch_size or marks.samples,
                "parameters": parameters(self._trained()),
                "gradients_reduced": True if self._single or "reduced" in placed else None,
                "stamps": {"placed": placed, "reason": reason},
            }
        )

    # -- events between steps --------------------------------------------------------------------

    @contextlib.contextmanager
    def epoch(self, number: Optional[int]) -> Iterator[None]:
        self._epoch = self._epoch + 1 if number is None else number
        began = monotonic_ns()
        try:
            yield
        finally:
            self.end_pause(EPOCH, began)

    def begin_pause(self, kind: str) -> None:
        """Start a pause; it ends no step, because the user marks steps."""
        if self._session is not None:
            self._session.pause(kind)

    @while_running
    def end_pause(self, kind: str, began: int) -> None:
        session, end = self._session, monotonic_ns()
        assert session is not None
        with session.cost.outside_iterations():
            # Write earlier steps first: the interval row names the next step.
            self._settle()
            session.interval(kind, max(self._epoch, 0), began, end)
