"""One recording: what is put into a training for a while, and what comes out of it as rows."""

from __future__ import annotations

import logging
from time import monotonic_ns
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from torch import Tensor

from ..clock import read_clocks
from ..format import EPOCH, StepRow
from ..guards import while_running
from ..opening import open_session
from ..options import Options
from ..session import Session
from .batches import samples_of, shape_in
from .cuda import CudaClock
from .ended import MOST_WAITING, EndedTurns
from .facts import (
    cuda_device,
    device_types,
    known,
    model_facts,
    parameters_of,
    steps_counted,
    why_no_stamps,
    world_of_training,
)
from .gradients import GradientClock
from .late import LateSteps
from .reductions import reductions_of
from .steps import Reduction, StepAssembler, Turn
from .telling import Telling

logger = logging.getLogger("stallscope")

# Recordings that are still open.
_open: List["Recording"] = []


class Recording:
    """What one StepLogger sees: epochs, turns of the loop, reductions, and what lies in between.

    Whatever fails in here stays in here: none of its methods raises, and none does anything unless
    the recording runs.
    """

    # Not a dict: in every turn the training has just driven it out of the processor's caches.
    __slots__ = (
        "_assembler",
        "_device",
        "_ended",
        "_epoch",
        "_epoch_began",
        "_failed",
        "_gradients",
        "_gradients_told",
        "_late",
        "_loop",
        "_model",
        "_optimizer",
        "_options",
        "_own_ns",
        "_samples",
        "_session",
        "_single",
        "_stamps",
        "_telling",
        "_times_gradients",
        "_turn",
        "_undo",
        "_waiting",
    )

    def __init__(self, optimizer: Any, model: Any, options: Options) -> None:
        self._optimizer = optimizer
        self._model = model
        self._options = options
        #: In every batch, where the user has said so.
        self._samples = options.batch_size
        self._session: Optional[Session] = None
        self._failed = False
        self._undo: List[Callable[[], None]] = []
        self._turn: Optional[Turn] = None
        self._loop: Optional[object] = None
        self._epoch = -1
        self._epoch_began: Optional[int] = None
        # Nanoseconds of the turn that runs that were the recorder's own.
        self._own_ns = 0
        # A device that works asynchronously: its clock, and steps that it is not through with.
        self._device: Optional[CudaClock] = None
        self._late: Optional[LateSteps] = None
        self._stamps: Dict[str, Any] = {}
        # Looked at in every turn.
        self._gradients_told = False

    @property
    def running(self) -> bool:
        return self._session is not None and self._session.recording and not self._failed

    # -- begin and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Open the log and watch gradients and reductions."""
        try:
            self._take_over()
            self._start()
        except Exception as error:
            self.fail(error)
            self._undo_all()

    def stop(self) -> None:
        """Leave optimizer and model as they were found, write what is left and close the log."""
        self._end_turn_early()
        self._settle()
        self._give_up()
        self.epoch_ends()
        if self in _open:
            _open.remove(self)
        self._undo_all()
        try:
            if self._session is not None:
                self._session.close(steps_counted(self._optimizer))
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Record no more, and say so once."""
        if self._session is not None:
            self._session.fail("recording failed: %r" % error)
        elif not self._failed:
            logger.warning("stallscope: recording could not start, training goes on: %r", error)
        self._failed, self._turn = True, None

    def _take_over(self) -> None:
        for other in list(_open):
            if self._same_training(other):
                logger.warning(
                    "stallscope: another StepLogger records this training from here on; one is enough"
                )
                other.stop()

    def _same_training(self, other: "Recording") -> bool:
        mine, theirs = (self._optimizer, self._model), (other._optimizer, other._model)
        return any(own is not None and own is its for own, its in zip(mine, theirs))

    def _start(self) -> None:
        optimizer, model, options = self._optimizer, self._model, self._options
        world = world_of_training()
        parameters = parameters_of(optimizer, model)
        reductions = reductions_of(optimizer, model, world.size)
        no_stamps = why_no_stamps(reductions, parameters, options.stages)
        self._single = world.size == 1
        reduced = True if self._single or (reductions.counts and not reductions.reason) else None
        if not no_stamps:
            self._device = known(lambda: _clock_of(parameters))
            if self._device is None and device_types(parameters) == ["cuda"]:
                no_stamps = "the CUDA device tells no times"
        self._stamps = {
            "placed": ["data"] if no_stamps else ["data", "ready", "reduced"],
            "reason": no_stamps,
        }
        if self._device is not None:
            self._stamps["clock"] = "cuda"
        facts = {
            **model_facts(optimizer, model, parameters, world.size),
            "loader_workers": None,
            "gradients_reduced": reduced,
            "stamps": self._stamps,
        }
        self._assembler = StepAssembler(reductions.counts, self._single)
        self._ended = EndedTurns(self._assembler, self._samples, self._made)
        self._waiting = self._ended.waiting
        session = self._session = open_session(
            options,
            world,
            facts,
            steps_counted(optimizer),
            before_flush=self._before_flush,
        )
        self._telling = Telling(session, optimizer, model, world.size, options.batch_size)
        if not session.recording:
            return
        _open.append(self)
        self._gradients = GradientClock(self._device)
        if self._device is not None:
            own = StepAssembler(reductions.counts, self._single)
            self._late = LateSteps(self._device, own, session.late_step)
        self._times_gradients = not no_stamps
        self._undo.append(self._gradients.remove)
        self._undo.append(reductions.remove)
        reductions.install(self._gradients if self._times_gradients else None, self._reduced)

    def _undo_all(self) -> None:
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                self.fail(error)

    # -- epochs, and what lies between steps ------------------------------------------------------

    @while_running
    def loop_begins(self, loop: object, loader: Any) -> None:
        self._end_turn_early()
        self._loop = loop
        self._telling.loop_begins(loader)
        if self._times_gradients:
            self._gradients.hook(parameters_of(self._optimizer, self._model))

    @while_running
    def loop_ends(self, loop: object, ends_epoch: bool) -> None:
        """Python may only close a loop that was left when another one runs already."""
        if loop is self._loop:
            self._end_turn_early()
            if ends_epoch:
                self.epoch_ends()

    @while_running
    def epoch_begins(self, number: Optional[int] = None) -> None:
        self.epoch_ends()
        begun_before = self._epoch >= 0
        self._epoch = self._epoch + 1 if number is None else number
        if begun_before:
            self._telling.rate_of(self._epoch)
        self._epoch_began = monotonic_ns()

    @while_running
    def epoch_ends(self) -> None:
        self._end_turn_early()
        began, self._epoch_began = self._epoch_began, None
        if began is not None:
            self._interval(EPOCH, began)
            self._telling.epoch_ended()

    def _before_flush(self) -> None:
        """From the flushing thread, and at the end: what has waited for it, and for a device."""
        self._ended.settle()
        if self._turn is not None:
            self._telling.look()
        if self._late is not None and self._session is not None and self._session.closed:
            self._late.settle(last=True)
            self._tell_of_device()

    def _tell_of_device(self) -> None:
        """How well the device has told its times, when it is over."""
        late, device, session = self._late, self._device, self._session
        assert late is not None
        assert device is not None
        assert session is not None
        told: Dict[str, Any] = {
            "clock_error_us": None if device.error_ns is None else round(device.error_ns / 1e3, 1),
            "turns_without_times": late.lost,
        }
        if device.broken is not None:
            told["reason"] = "the device gave no times any more: %s" % device.broken
        session.facts({"stamps": {**self._stamps, **told}})

    @while_running
    def pause_begins(self) -> None:
        """Something besides training begins. A step whose gradients are reduced ends before it."""
        if self._turn is not None and self._turn.reductions:
            self.turn_ends()

    @while_running
    def pause_ends(self, kind: str, began: int) -> None:
        self._interval(kind, began)

    def _interval(self, kind: str, began: int) -> None:
        session, end = self._session, monotonic_ns()
        assert session is not None
        # The steps before it first: the row says which one comes next.
        self._settle()
        session.interval(kind, max(self._epoch, 0), began, end)

    # -- turns of the loop -----------------------------------------------------------------------

    # These run in every step, between the user's own lines: they do what cannot wait, and have their
    # guards inside.

    def turn_begins(self) -> None:
        session = self._session
        if session is None or not session.recording:
            self._turn = None
            return
        try:
            if len(self._waiting) >= MOST_WAITING:
                self._settle()
            begin = monotonic_ns()
            turn = self._turn = Turn(self._epoch, begin)
            self._gradients.forget()
            if self._device is not None:
                turn.begin_mark = self._device.stamp()
            self._own_ns = monotonic_ns() - begin
        except Exception as error:
            self.fail(error)

    def data_is_there(self, batch: Any, shape: Optional[Sequence[int]] = None) -> None:
        """``shape`` is the batch's, as far as it is known without asking."""
        turn = self._turn
        if turn is None:
            return
        try:
            data = turn.data = monotonic_ns()
            if self._device is not None:
                turn.data_mark = self._device.stamp()
            if shape is None:
                # What nearly all batches are. Training has just filled the caches: a call takes long.
                kind = type(batch)
                first = batch[0] if (kind is list or kind is tuple) and batch else batch
                shape = (type(first) is Tensor and first.shape) or shape_in(batch)
            turn.shape = shape
            self._own_ns += monotonic_ns() - data
        except Exception as error:
            self.fail(error)

    def turn_ends(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        try:
            end = monotonic_ns()
            if self._late is not None:
                self._ends_late(turn, end, self._late)
            else:
                self._keep(turn, end, self._gradients.last, self._own_ns + monotonic_ns() - end)
        except Exception as error:
            self.fail(error)

    def turn_follows(self) -> None:
        """A turn ends, and another one begins; what that takes is told with the other one."""
        turn = self._turn
        if turn is None or self._late is not None or len(self._waiting) >= MOST_WAITING:
            self.turn_ends()
            self.turn_begins()
            return
        try:
            end = monotonic_ns()
            gradients = self._gradients
            ready, seen, own_ns = gradients.last, turn.reductions, self._own_ns
            # As _keep does, without the call.
            self._waiting.append(
                (turn.epoch, turn.begin, turn.data, turn.shape, seen, end, ready, own_ns)
            )
            if ready is None or gradients.on_gradient is None:
                gradients.forget()
            else:
                # All that there is to forget of a backward pass that went as it should.
                gradients.last = None
            # The same object again, which is in the processor's caches.
            turn.data = turn.shape = None
            turn.reductions = []
            begin = turn.begin = monotonic_ns()
            self._own_ns = begin - end
        except Exception as error:
            self.fail(error)

    def _keep(self, turn: Turn, end: int, ready: Optional[int], own_ns: int) -> None:
        """What a turn was, for the thread that makes rows of it."""
        seen = turn.reductions
        self._waiting.append(
            (turn.epoch, turn.begin, turn.data, turn.shape, seen, end, ready, own_ns)
        )

    def _ends_late(self, turn: Turn, end: int, late: LateSteps) -> None:
        """The end of a turn of which a device knows the times."""
        assert self._session is not None
        turn.clock = read_clocks()[1]
        turn.samples = self._samples or samples_of(turn.shape)
        ended = late.ended(turn, end, self._gradients.mark)
        rows = self._assembler.rows(turn, end, self._gradients.last)
        late.add(ended, self._numbered(rows))
        # Here, and in no other thread: while training captures a graph, asking is not allowed.
        late.settle()
        if self._assembler.lost_count:
            self._give_up()
        self._session.cost.turn(self._own_ns + monotonic_ns() - end)

    @while_running
    def no_turn(self) -> None:
        """The data has ended: what began was no turn."""
        self._turn = None

    @while_running
    def _end_turn_early(self) -> None:
        """The user has left the loop: it was a turn if there were gradients in it."""
        turn = self._turn
        if turn is not None and (turn.reductions or self._gradients.last is not None):
            self.turn_ends()
        self._turn = None

    def _reduced(self, reduction: Reduction) -> None:
        turn = self._turn
        try:
            if turn is not None:
                turn.reduced(reduction)
            if not self._gradients_told and self.running:
                self._gradients_told = True
                self._telling.gradients_reduced()
        except Exception as error:
            self.fail(error)

    @while_running
    def _settle(self) -> None:
        """Make rows of the turns that have ended: where training waits for that, it is a cost."""
        assert self._session is not None
        with self._session.cost.besides():
            self._ended.settle()

    @while_running
    def _give_up(self) -> None:
        assert self._session is not None
        rows = self._assembler.give_up()
        if rows:
            if self._late is None:
                self._emit(rows)
            else:
                self._late.add(None, self._numbered(rows))
            reason = "the optimizer or model that was given never reduced a gradient"
            self._stamps = {**self._stamps, "placed": ["data"], "reason": reason}
            reduced = True if self._single else None
            self._session.facts({"gradients_reduced": reduced, "stamps": self._stamps})

    def _made(self, rows: List[StepRow], own_ns: int) -> None:
        """What a turn that has ended makes, in whatever thread settles."""
        assert self._session is not None
        self._session.cost.turn(own_ns)
        self._emit(rows)
        if self._assembler.lost_count:
            self._give_up()

    def _emit(self, rows: List[StepRow]) -> None:
        assert self._session is not None
        for row in self._numbered(rows):
            self._session.step(row)

    def _numbered(self, rows: List[StepRow]) -> List[StepRow]:
        session = self._session
        assert session is not None
        found = [row._replace(step=session.next_step + at) for at, row in enumerate(rows)]
        session.next_step += len(rows)
        self._telling.recorded(rows)
        return found


def _clock_of(parameters: List[torch.Tensor]) -> Optional[CudaClock]:
    """The clock of the CUDA device that they are on; None where the host sees gradients itself."""
    index = cuda_device(parameters)
    return None if index is None else CudaClock(torch.cuda, index)
