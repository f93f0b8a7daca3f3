"""Clocks around what Keras calls on the model: its train function and its saving."""

from __future__ import annotations

import functools
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Callable

from ..clock import read_clocks
from .steps import Call

if TYPE_CHECKING:
    from .recording import Recording


class TimedFunction:
    """The model's train function between two looks at the clocks.

    Taken here and not in the batch hooks, the times do not depend on the order of callbacks: what
    other callbacks do is between steps, not inside them.
    """

    def __init__(self, function: Callable[..., Any], recording: "Recording") -> None:
        self._function = function
        self._recording = recording
        # Wall minus monotonic clock, at the end of the last call.
        self._clock = read_clocks()[1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        entered = monotonic_ns()
        recording = self._recording
        recording.before_call()
        if not recording.running:
            return self._unrecorded()(*args, **kwargs)
        epoch, count = recording.epoch, recording.steps_of_next_call
        # A clock that was set since the last call's end counts as set in this one.
        clock_begin = self._clock
        begin = monotonic_ns()
        try:
            outputs = self._function(*args, **kwargs)
        except BaseException:
            recording.aborted(Call(epoch, begin, None, clock_begin, read_clocks()[1], count))
            raise
        end, self._clock = read_clocks()
        call = Call(epoch, begin, end, clock_begin, self._clock, count)
        recording.called(call, begin - entered)
        return outputs

    def __getattr__(self, name: str) -> Any:
        if name == "_function":  # not there yet while a copy is made
            raise AttributeError(name)
        return getattr(self._function, name)

    def _unrecorded(self) -> Callable[..., Any]:
        """What trains now: the model's new function where the recording gave the model back."""
        function = self._recording.model.train_function
        if function is None or function is self:
            return self._function
        return function  # type: ignore[no-any-return]


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
