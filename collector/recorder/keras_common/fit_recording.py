"""Record one ``fit`` of one Keras model, with any version of Keras."""

from __future__ import annotations

import sys
import threading
from time import monotonic_ns
from types import FrameType
from typing import Any, Callable, Dict, List, Optional

from ..base_recording import BaseRecording
from ..guards import never_raises
from ..hangs import Position, running_frame
from ..input.loader_wrappers import LOST
from ..job.job_facts import count_or_none, known
from ..job.world import World
from ..options import Options
from ..session import Session
from ..step_log.line_format import BACKGROUND_SAVING, CHECKPOINT, EPOCH, VALIDATION
from .finished_calls import FinishedCalls, TimedSaving

# Recordings that still run. An exception ends fit without calling the callbacks.
_open: List["FitRecording"] = []


def recording_of(model: Any) -> Optional["FitRecording"]:
    """Return the recording that is still patched into the model; None without one."""
    return next((recording for recording in _open if recording.model is model), None)


def stop_abandoned() -> None:
    """Stop recordings of fits that an exception has ended: they would keep their models alive."""
    for recording in list(_open):
        if recording.abandoned:
            recording.stop()


def fit_frame(model: Any, variable: Optional[str] = None) -> Optional[FrameType]:
    """Return the frame of the model's ``fit`` on this thread; None where there is none.

    Args:
        variable: a local variable of Keras' own ``fit``, which methods that override it do not have.
    """
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        code = frame.f_code
        is_fit = code.co_name == "fit" and (variable is None or variable in code.co_varnames)
        if is_fit and frame.f_locals.get("self") is model:
            return frame
        frame = frame.f_back
    return None


class FitRecording(BaseRecording):
    """Patch a model for one ``fit`` and write the steps to the log.

    No method raises: a failure ends the recording with one warning.

    Args:
        model: the model that trains.
        params: Keras' parameters of the fit.
        options: the arguments of StepLogger.
    """

    #: A local variable of ``fit`` (see ``fit_frame``).
    fit_variable: Optional[str] = None

    def __init__(self, model: Any, params: Optional[Dict[str, Any]], options: Options) -> None:
        super().__init__(options)
        self.model = model
        self._params = params or {}
        #: The current epoch.
        self.epoch: Optional[int] = None
        self._optimizer = getattr(model, "optimizer", None)
        # Keras makes a new history for every fit, so the history identifies the fit.
        self._history = getattr(model, "history", None)
        # The thread that runs the fit; None where it is another one.
        self._thread = None if self._running_fit() is None else threading.get_ident()
        self._active = False
        self._batch_size = options.batch_size
        self._recorded_facts: Any = None
        self._undo: List[Callable[[], None]] = []
        self._calls: Optional[FinishedCalls] = None
        # Makes rows of finished calls.
        self._stream: Any = None
        # Replaces the model's train function.
        self._timer: Optional[TimedFunction] = None
        # The number of ranks, and the passes that the optimizer had counted and that make a step.
        self._size = self._passes = 1
        self._counted_before = 0
        #: When the last step was done, which may be after Keras has gone on to a pause.
        self._last_end = 0

    @property
    def running(self) -> bool:
        """Return whether calls are recorded."""
        return self._active and self._session is not None and self._session.recording

    @property
    def is_of_this_fit(self) -> bool:
        """Return whether the recording was made for the fit that is just starting."""
        fresh = self._calls is None or self._calls.checks == 0
        return fresh and self._history is getattr(self.model, "history", None)

    @property
    def in_place(self) -> bool:
        """Return whether the model still trains with the recording's timer."""
        return getattr(self.model, "train_function", None) is self._timer

    @property
    def abandoned(self) -> bool:
        """Return whether its fit started on this thread and no longer runs on it."""
        return self._thread == threading.get_ident() and self._running_fit() is None

    # -- differences between versions of Keras ----------------------------------------------------

    def before_call(self) -> None:
        """Check the training before a call of the train function."""
        raise NotImplementedError

    def after_call(self) -> None:
        """Check the training after a call, which now waits to become a row."""
        raise NotImplementedError

    def _world_of_training(self) -> World:
        """Return the rank, after reading from the optimizer how it counts passes."""
        raise NotImplementedError

    def _takes_several(self) -> bool:
        """Return whether a call of the train function may take several batches."""
        raise NotImplementedError

    def _facts(self) -> Dict[str, Any]:
        """Return the facts that are known before the first step."""
        raise NotImplementedError

    def _install(self, session: Session, calls: FinishedCalls) -> None:
        """Make the stream, and patch the model to take timestamps."""
        raise NotImplementedError

    def _timed(self, train_function: Any, session: Session, calls: FinishedCalls) -> TimedFunction:
        """Return a timer around the train function, which may be made again, with timestamps."""
        raise NotImplementedError

    def _make_rows(self) -> None:
        """Make rows of all calls that have finished; only called between calls."""
        raise NotImplementedError

    def _update_facts(self) -> None:
        """Record facts that are known only after the first step."""
        raise NotImplementedError

    def _passes_counted(self) -> int:
        """Return the backward passes that the optimizer has ever counted."""
        raise NotImplementedError

    def _position_in_call(self, begin: int) -> Position:
        """Return the progress of the step whose call started at ``begin``."""
        return Position(begin)

    def position(self) -> Position:
        """Return the progress of the step in flight; called on the flushing thread.

        The stack of the training thread shows its call of the train function.
        """
        call = running_frame(self._thread, type(self._timer).__call__.__code__)
        if call is None:
            return self._position_between_calls()
        times = call.f_locals
        if "end" in times:
            return Position()
        return self._position_in_call(times.get("begin") or times["entered"])

    def _position_between_calls(self) -> Position:
        return Position()

    # -- start and stop ----------------------------------------------------------------------------

    @never_raises
    def start(self) -> None:
        """Open the log, then put timestamps and timers into the model."""
        world = self._world_of_training()
        self._size = world.size
        self._counted_before = self._passes_counted()
        facts = {
            **self._facts(),
            "epochs": count_or_none(self._params.get("epochs")),
            "batches_per_epoch": self._batches_per_epoch(),
        }
        counted = self._counted_before // self._passes
        self.why_never_ahead = self._why_not_ahead() if self._options.probe_input else None
        session = self._open_session(world, facts, counted, self.drain, self.position)
        if not session.recording:
            return
        _open.append(self)
        self._active = True
        calls = self._calls = FinishedCalls(session.cost)
        calls.change(self.epoch)
        self._install(session, calls)
        saving = TimedSaving(self.model, self._begin_checkpoint, self._record_checkpoint)
        self._undo.append(saving.remove)
        saving.install()
        self._time_train_function(session, calls)

    def stop(self) -> None:
        """Write what is left, restore the model and close the log."""
        if self in _open:
            _open.remove(self)
        self._finish()
        self._active = False
        while self._undo:
            self._undo_one(self._undo.pop())
        self._close()

    def fail(self, error: Exception) -> None:
        """Stop recording and warn once; the model is restored when training ends."""
        self._active = False
        if self._calls is not None:
            self._calls.schedule_check(every_call=True)
        super().fail(error)

    @never_raises
    def drain(self) -> None:
        """Make rows of finished calls; the flushing thread calls it too."""
        if self.running and self._stream is not None:
            self._stream.drain()

    @never_raises
    def call_aborted(self, begin: int) -> None:
        """Handle a call that started at ``begin`` and ended with an exception."""
        self._stream.abort(begin)

    def _time_train_function(self, session: Session, calls: FinishedCalls) -> None:
        model = self.model
        names = [name for name in ("train_function", "train_tf_function") if hasattr(model, name)]
        functions = {name: getattr(model, name) for name in names}

        def undo() -> None:
            # Keep a replacement that was made since.
            if self._timer is None or model.train_function is self._timer:
                for name, function in functions.items():
                    setattr(model, name, function)

        self._undo.append(undo)
        self._timer = self._timed(model.train_function, session, calls)
        model.train_function = self._timer

    def _runs_timer(self) -> bool:
        """Return whether this thread is inside a call of the timer."""
        return self._timer is not None and calls_through(self._timer)

    def _why_not_ahead(self) -> Optional[str]:
        """Return why no batches of this fit can be fetched ahead; None if they may."""
        fit = self._running_fit()
        if fit is None:
            return "the callback is not called by fit, and the loop fetches its batches itself"
        data = fit.f_locals.get("x")
        if hasattr(data, "__next__"):
            return LOST % type(data).__name__
        if self._options.synthetic:
            return "the data is synthetic"
        if self._takes_several():
            return "steps_per_execution: a call of the train function takes several batches"
        return None

    def _batches_per_epoch(self) -> Optional[int]:
        return count_or_none(self._params.get("steps"))

    @property
    def _probes(self) -> bool:
        """Return whether batches are to be fetched ahead."""
        return bool(self._options.probe_input) and self.why_never_ahead is None

    def _running_fit(self) -> Optional[FrameType]:
        return fit_frame(self.model, self.fit_variable)

    @never_raises
    def _undo_one(self, undo: Callable[[], None]) -> None:
        undo()

    @never_raises
    def _finish(self) -> None:
        if self.running:
            self._make_rows()
            self._update_facts()
            assert self._calls is not None
            self._calls.close()

    @never_raises
    def _close(self) -> None:
        if self._session is not None:
            # After an exception in a step, the count may be unreadable.
            self._session.close(known(lambda: self._passes_counted() // self._passes))

    # -- events between steps ----------------------------------------------------------------------

    @never_raises
    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        if self._calls is not None:
            self._calls.change(epoch)
        self._epoch_start = monotonic_ns()

    @never_raises
    def end_epoch(self) -> None:
        self._interval(EPOCH, self._epoch_start, monotonic_ns())

    @never_raises
    def begin_validation(self) -> None:
        self._validation_start = monotonic_ns()
        if self._session is not None:
            self._session.pause(VALIDATION)

    @never_raises
    def end_validation(self) -> None:
        self._interval(VALIDATION, self._validation_start, monotonic_ns())

    @never_raises
    def _begin_checkpoint(self) -> None:
        session = self._session
        if session is not None and session.is_training_thread():
            session.pause(CHECKPOINT)

    @never_raises
    def _record_checkpoint(self, begin: int, end: int) -> None:
        session = self._session
        if session is not None and not session.is_training_thread():
            session.beside_training(BACKGROUND_SAVING, begin, end)
        else:
            self._interval(CHECKPOINT, begin, end)

    def _interval(self, kind: str, begin: int, end: int) -> None:
        session = self._session
        if self.running and session is not None:
            with session.cost.outside_iterations():
                # Write earlier steps first: the interval row names the next step.
                self._make_rows()
                # Batches of another shape may have caused another trace.
                self._update_facts()
                if kind != EPOCH:
                    begin = max(begin, self._last_end)
                session.interval(kind, self.epoch, begin, max(begin, end))


# -- the train function ----------------------------------------------------------------------------


class TimedFunction:
    """Wraps the model's train function in two readings of the clock.

    Unlike times of batch hooks, these do not depend on the order of callbacks: the work of other
    callbacks is between steps, not inside them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_function":  # missing while a copy is made
            raise AttributeError(name)
        return getattr(self._function, name)


def timed(
    function: Callable[..., Any],
    recording: FitRecording,
    session: Session,
    calls: FinishedCalls,
    saw: Optional[Callable[[Any], Any]] = None,
    key: Optional[str] = None,
    last_of: Any = None,
) -> TimedFunction:
    """Wrap the function in a timer that adds its calls to ``calls``.

    Further information about a call comes from the returned logs, under ``key``, which is removed; or
    it is ``last_of.last``; or ``saw`` extracts it from the returned value.

    Every call does as little as possible, with few objects: training has just evicted them from the
    CPU's caches, and fetching an object takes longer than using it. So all of them are in the closure of
    a class per timer.
    """
    model_has, add_call, now = vars(recording.model), calls.waiting.append, monotonic_ns
    # Keras makes a new history for every fit, so the history identifies the fit.
    history = model_has.get("history")

    class Timer(TimedFunction):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            entered = now()
            checks_call = entered >= calls.check_at or model_has.get("history") is not history
            if checks_call:
                trained = recording.model.train_function
                recording.before_call()
                if not session.recording:
                    trains = recording.model.train_function
                    # Call what trains now, if the recording has just restored the model; but not a
                    # wrapper that someone put around this timer and that calls it.
                    given_back = trained is self and trains is not None and trains is not self
                    if given_back:
                        return trains(*args, **kwargs)
                    outputs = function(*args, **kwargs)
                    if key is not None and type(outputs) is dict:
                        outputs.pop(key, None)
                    return outputs
            begin = now()
            try:
                outputs = function(*args, **kwargs)
            except BaseException:
                recording.call_aborted(begin)
                raise
            end = now()
            seen = None
            if key is not None:
                if type(outputs) is dict:
                    seen = outputs.pop(key, None)
            elif last_of is not None:
                seen = last_of.last
            elif saw is not None:
                try:
                    seen = saw(outputs)
                except Exception as error:  # no error may reach training
                    recording.fail(error)
            add_call((entered, begin, end, calls.recorded_at, seen))
            if checks_call:
                calls.checks += 1
                recording.after_call()
            # The thread that makes rows computes the cost from it.
            calls.recorded_at = now()
            return outputs

    return Timer(function)


def calls_through(timer: TimedFunction) -> bool:
    """Return whether this thread is inside a call of the timer."""
    frame, code = sys._getframe(), type(timer).__call__.__code__
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is code and frame.f_locals.get("self") is timer:
            return True
    return False
