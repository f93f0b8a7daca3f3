"""Time the model's train function and its saving."""

from __future__ import annotations

import functools
import inspect
import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from ..patching import patch

if TYPE_CHECKING:
    from ..session import Session
    from .calls import FinishedCalls
    from .fit_recording import FitRecording


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
    recording: "FitRecording",
    session: "Session",
    calls: "FinishedCalls",
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


def is_made_by(model_class: Any, train_function: Any) -> bool:
    """Return whether the class itself made the train function, without an override.

    Keras' own function returns the train step's logs unchanged.
    """
    makes = code_of(inspect.unwrap(model_class.make_train_function))
    return bool(getattr(code_of(train_function), "co_filename", None) == makes.co_filename)


def code_of(function: Any) -> Any:
    """Return a value that identifies a function's definition."""
    return getattr(getattr(function, "python_function", function), "__code__", function)


class TimedSaving:
    """Time the model's methods for saving, called by the user or by a callback."""

    def __init__(
        self, model: Any, started: Callable[[], None], record: Callable[[int, int], None]
    ) -> None:
        self._model = model
        self._started = started
        self._record = record
        self._depth = 0
        self._restore: List[Callable[[], None]] = []

    def install(self) -> None:
        for name in ("save", "save_weights"):
            if name not in vars(self._model):
                timed = self._timed(getattr(self._model, name))
                self._restore.append(patch(self._model, name, timed))

    def remove(self) -> None:
        while self._restore:
            self._restore.pop()()

    def _timed(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = monotonic_ns()
            if self._depth == 0:
                self._started()
            self._depth += 1
            try:
                return save(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._record(begin, monotonic_ns())

        return timed
