"""Recording a training loop of the user's own: steps are what he says they are."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any, Callable, Deque, Dict, Iterator, Optional, Tuple, Type

import tensorflow as tf

from ..clock import JUMP_NS, read_clocks
from ..format import EPOCH, StepRow
from ..guards import never_raises, while_running
from ..identity import world_from_environment
from ..opening import open_session
from ..options import Options
from ..session import Session
from .calls import LOOK_AGAIN_NS, MOST_WAITING
from .facts import horovod_world, model_facts, parameters
from .instrument import gradient_facts
from .marks import DATA, GRADIENTS, REDUCED, EndedStep, Marks
from .optimizers import passes_counted

logger = logging.getLogger("stallscope")

# What marks are called in a step log.
_STAMPS = {DATA: "data", GRADIENTS: "ready", REDUCED: "reduced"}


class OwnLoop:
    """Steps of one loop on their way to the log. None of its methods raises.

    It is a context around each of the steps.
    """

    # Not a dict: in every step the training has just driven it out of the processor's caches.
    __slots__ = (
        "_begin",
        "_clock",
        "_depth",
        "_ended",
        "_epoch",
        "_failed",
        "_gradients",
        "_lock",
        "_look_at",
        "_marks",
        "_model",
        "_optimizer",
        "_options",
        "_over",
        "_own_ns",
        "_session",
        "_single",
        "_without",
    )

    def __init__(self, model: Any, optimizer: Any, options: Options) -> None:
        self._model = model
        self._optimizer = optimizer or getattr(model, "optimizer", None)
        self._options = options
        self._marks = Marks()
        self._session: Optional[Session] = None
        self._failed = False
        # Steps that have begun and not ended: one inside of another is part of it.
        self._depth = 0
        # When the one that runs began; None where none is recorded.
        self._begin: Optional[int] = None
        # Wall minus monotonic clock, when rows were made last.
        self._clock = read_clocks()[1]
        # Nanoseconds of the step that runs that were the recorder's own, when it was through with the
        # step before, and when that of the last row would have ended without the recorder.
        self._own_ns = 0
        self._over: Optional[int] = None
        self._without: Optional[int] = None
        # From when on there is something to do after a step.
        self._look_at = 0
        self._epoch = -1
        self._gradients: Dict[str, Any] = {}
        # Steps that have ended and are no rows yet: what makes an EndedStep. Bare tuples: one with names
        # takes training ten times as long to make.
        self._ended: Deque[Tuple[Any, ...]] = deque()
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        return self._session is not None and self._session.recording and not self._failed

    @never_raises
    def start(self) -> None:
        """Open the log."""
        options = self._options
        world = horovod_world() or world_from_environment(os.environ)
        self._single = world.size == 1
        self._session = open_session(
            options,
            world,
            {
                **model_facts(self._trained(), world.size),
                "stamps": {"placed": [], "reason": None},
            },
            passes_counted(self._optimizer),
            before_flush=self._settle,
        )

    @never_raises
    def stop(self) -> None:
        """Write what is left and close the log."""
        if self._session is not None:
            if self._look_at:
                self._look()
            self._settle()
            self._count(self._session, self._over)
            self._session.close(passes_counted(self._optimizer))

    def fail(self, error: Exception) -> None:
        """Record no more, and say so once."""
        if self._session is not None:
            self._session.fail("recording failed: %r" % error)
        elif not self._failed:
            logger.warning("stallscope: recording could not start, training goes on: %r", error)
        self._failed = True

    def _trained(self) -> Any:
        """What facts are asked of: a model that is not compiled does not know its optimizer."""
        model = self._model
        return SimpleNamespace(
            optimizer=self._optimizer,
            name=getattr(model, "name", None),
            built=getattr(model, "built", False),
            count_params=getattr(model, "count_params", None),
        )

    # -- steps -----------------------------------------------------------------------------------

    # These run in every step, between the user's own lines: they do what cannot wait, and have their
    # guards inside. What they need of other modules they have as arguments: to look up a global name
    # there takes as long as all that is done with it.

    def __enter__(self, now: Callable[[], int] = monotonic_ns) -> None:
        """A step begins; one inside of another is part of it."""
        self._depth += 1
        session = self._session
        if self._depth > 1 or session is None or not session.recording:
            return
        entered = now()
        marks = self._marks
        # What the step before had, and what was set in between, which belongs to none.
        marks.data = marks.gradients = marks.reduced = marks.samples_now = None
        begin = self._begin = now()
        self._own_ns = begin - entered

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Any,
        trace: Any,
        now: Callable[[], int] = monotonic_ns,
    ) -> None:
        """It has ended; one that raises is none."""
        self._depth -= 1
        begin = self._begin
        if self._depth or begin is None:
            return
        self._begin = None
        if kind is not None:
            return
        end, marks = now(), self._marks
        # As EndedStep has them.
        self._ended.append(
            (
                self._epoch,
                begin,
                end,
                marks.data,
                marks.gradients,
                marks.reduced,
                marks.samples_now,
                self._own_ns,
                self._over,
            )
        )
        if end >= self._look_at:
            self._look()
        self._over = now()

    @while_running
    def _look(self) -> None:
        """After what need not be looked after in every step."""
        if self._marks.are_news:
            self._announce()
        if len(self._ended) >= MOST_WAITING:
            self._settle()
        self._look_at = monotonic_ns() + LOOK_AGAIN_NS

    @never_raises
    def _settle(self) -> None:
        """Make rows of the steps that have ended; from the flushing thread as well."""
        session = self._session
        if session is None:
            return
        with self._lock:
            # These first: what graphs have marked in them is there then.
            ended = [EndedStep(*self._ended.popleft()) for _ in range(len(self._ended))]
            if not ended:
                return
            self._marks.read()
            before, clock = self._clock, read_clocks()[1]
            self._clock = clock
            if abs(clock - before) > JUMP_NS:
                # It was set: it is not known which of the timestamps were taken before.
                self._marks.forget_read()
            begins = [step.begin for step in ended[1:]]
            for step, next_begin in zip(ended, [*begins, None]):
                self._count(session, step.over)
                self._without = step.end - step.own_ns
                session.step(self._row(session, step, next_begin))

    def _count(self, session: Session, over: Optional[int]) -> None:
        """What recording the step took that became a row last."""
        if over is not None and self._without is not None:
            session.cost.turn(over - self._without)
            self._without = None

    def _row(self, session: Session, step: EndedStep, next_begin: Optional[int]) -> StepRow:
        clock = self._clock
        data, ready, reduced = self._marks.times_of(step, next_begin, clock)
        if self._single:
            # One process: what is ready needs no reducing.
            reduced = ready
        number, epoch = session.next_step, max(step.epoch, 0)
        samples = self._options.batch_size or step.samples
        return StepRow(number, epoch, step.begin, data, ready, reduced, step.end, 1, samples, clock)

    # Plain, as in StepLogger: what autograph may not look into is behind it.
    def mark(
        self,
        name: str,
        tensors: Any,
        now: Callable[[], int] = monotonic_ns,
        kind_of: Callable[[Any], type] = type,
        several: Tuple[type, ...] = (tuple, list),
        data: str = DATA,
    ) -> None:
        """Something is there, now or, where a graph is traced, in every run of it."""
        entered = now()
        marks = self._marks
        first = tensors[0] if kind_of(tensors) in several and tensors else tensors
        # To ask TensorFlow whether it traces a graph takes longer than all the rest of a step.
        if kind_of(first) is not marks.eager or name not in marks.on_host:
            self._mark(name, tensors)
        elif name == data:
            marks.data_again(first, entered)
        else:
            setattr(marks, name, entered)
        self._own_ns += now() - entered

    @tf.autograph.experimental.do_not_convert
    @while_running
    def _mark(self, name: str, tensors: Any) -> None:
        if name == GRADIENTS and tensors is not None and not self._gradients:
            self._gradients = gradient_facts(tf.nest.flatten(tensors), None)
        self._marks.mark(name, tensors)

    @while_running
    def watch(self, tape: Any) -> None:
        """Have a tape mark what it gives."""
        name = "_allreduce_grads" if hasattr(tape, "_allreduce_grads") else "gradient"
        original = getattr(tape, name)

        # Plain, so that autograph treats what it calls as it would have.
        def reduced(gradients: Any, *args: Any, **kwargs: Any) -> Any:
            self.mark(GRADIENTS, gradients)
            found = original(gradients, *args, **kwargs)
            self.mark(REDUCED, found)
            return found

        def gradient(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            self.mark(GRADIENTS, found)
            return found

        setattr(tape, name, gradient if name == "gradient" else reduced)

    def _announce(self) -> None:
        """What a step has brought to light, once."""
        marks, session = self._marks, self._session
        assert session is not None
        marks.are_news = False
        placed = [_STAMPS[name] for name in _STAMPS if name in marks.placed]
        if self._single and "ready" in placed and "reduced" not in placed:
            placed.append("reduced")
        missing = [name for name in (DATA, GRADIENTS, REDUCED) if _STAMPS[name] not in placed]
        reason = marks.trouble
        if reason is None and missing:
            reason = "no mark of %s was seen since the log began" % ", ".join(missing)
        session.facts(
            {
                **self._gradients,
                "batch_size": self._options.batch_size or marks.samples,
                "parameters": parameters(self._trained()),
                "gradients_reduced": True if self._single or "reduced" in placed else None,
                "stamps": {"placed": placed, "reason": reason},
            }
        )

    # -- what lies between steps -----------------------------------------------------------------

    @contextlib.contextmanager
    def epoch(self, number: Optional[int]) -> Iterator[None]:
        self._epoch = self._epoch + 1 if number is None else number
        with self.interval(EPOCH):
            yield

    @contextlib.contextmanager
    def interval(self, kind: str) -> Iterator[None]:
        begin = monotonic_ns()
        try:
            yield
        finally:
            self._interval_ends(kind, begin)

    @while_running
    def _interval_ends(self, kind: str, begin: int) -> None:
        session, end = self._session, monotonic_ns()
        assert session is not None
        with session.cost.besides():
            # The steps before it first: the row says which one comes next.
            self._settle()
            session.interval(kind, max(self._epoch, 0), begin, end)
