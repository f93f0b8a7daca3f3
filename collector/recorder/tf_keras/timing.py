"""Clocks around what Keras calls on the model: its train function and its saving."""

from __future__ import annotations

import functools
import inspect
import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Callable, Optional

from ..clock import read_clocks

if TYPE_CHECKING:
    from ..fit_recording import FitRecording
    from ..session import Session
    from .calls import EndedCalls


class TimedFunction:
    """The model's train function between two looks at the clock.

    Taken here and not in the batch hooks, the times do not depend on the order of callbacks: what
    other callbacks do is between steps, not inside them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_function":  # not there yet while a copy is made
            raise AttributeError(name)
        return getattr(self._function, name)


def timed(
    function: Callable[..., Any],
    recording: "FitRecording",
    session: "Session",
    calls: "EndedCalls",
    saw: Optional[Callable[[Any], Any]] = None,
    key: Optional[str] = None,
    last_of: Any = None,
) -> TimedFunction:
    """The function with the timer around it, whose calls go to ``calls``.

    What is to be known of a call besides is in the returned logs under ``key``, and taken out of them;
    or it is ``last_of.last``; or ``saw`` gives it back, which is told what the call returned.

    In every call, as little is done as can be, with few objects: the training has just driven
    everything else out of the processor's caches, where coming by an object takes longer than what is
    done with it. So the call has them in its closure, in a class of its own.
    """
    model_has, ended, now = vars(recording.model), calls.waiting.append, monotonic_ns
    # Keras makes a new history for every fit: it tells this fit from another one.
    history = model_has.get("history")

    class Timer(TimedFunction):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            entered = now()
            looks = entered >= calls.look_at or model_has.get("history") is not history
            if looks:
                trained = recording.model.train_function
                recording.before_call()
                if not session.recording:
                    trains = recording.model.train_function
                    # What trains now, where the recording has just given the model back; but not what
                    # somebody has put around this timer, and that calls it.
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
                recording.aborted(begin)
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
                except Exception as error:  # whatever it is, it may not reach training
                    recording.fail(error)
            ended((entered, begin, end, calls.over, seen))
            if looks:
                calls.looked += 1
                recording.called()
            # The thread that makes rows finds out what is taken from what.
            calls.over = now()
            return outputs

    return Timer(function)


def calls_through(timer: TimedFunction) -> bool:
    """Whether this thread is in a call of the timer."""
    frame, code = sys._getframe(), type(timer).__call__.__code__
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is code and frame.f_locals.get("self") is timer:
            return True
    return False


def is_made_by(model_class: Any, train_function: Any) -> bool:
    """Whether the class has made it, and not one that overrides how.

    What Keras makes itself hands the train step's logs on as they are.
    """
    makes = code_of(inspect.unwrap(model_class.make_train_function))
    return bool(getattr(code_of(train_function), "co_filename", None) == makes.co_filename)


def code_of(function: Any) -> Any:
    """What tells functions of one definition from those of another."""
    return getattr(getattr(function, "python_function", function), "__code__", function)


class TimedSaving:
    """The model's own saving between two looks at the clock, whichever callback asks for it."""

    def __init__(self, model: Any, record: Callable[[int, int], None]) -> None:
        self._model = model
        self._record = record
        self._depth = 0

    def install(self) -> None:
        for name in ("save", "save_weights"):
            if name not in vars(self._model):
                setattr(self._model, name, self._timed(getattr(self._model, name)))

    def remove(self) -> None:
        for name in ("save", "save_weights"):
            if getattr(vars(self._model).get(name), "_stallscope_timer", None) is self:
                delattr(self._model, name)

    def _timed(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = read_clocks()[0]
            self._depth += 1
            try:
                return save(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._record(begin, read_clocks()[0])

        timed._stallscope_timer = self  # type: ignore[attr-defined]  # marks what remove() takes out
        return timed
