"""``StepLogger`` for Keras 2: a callback of ``model.fit``, or a context for custom loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ContextManager, Optional

import tensorflow as tf

from ..keras_common.fit_callback import FitCallback
from ..loop_recording import LoopLogger
from ..options import LogDir, OptionArguments, Options, with_options
from .custom_loop import CustomLoop
from .gradient_marks import TracedMarks
from .loader import keras
from .tf_keras_recording import Recording

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StepLogger(FitCallback, LoopLogger, keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Record where the time of every step goes, on every rank, into one small file per rank.

        model.fit(data, callbacks=[StepLogger("logs/run-42")])

    A custom loop marks its steps:

        with StepLogger("logs/run-42", model=model, optimizer=optimizer) as log:
            for batch in data:
                with log.step():
                    ...

    Timestamps in the training graph record when the gradients are ready and reduced.

    Args:
        model, optimizer: trained by a custom loop; ``fit`` has its own.
        log_dir, options: see ``__init__``.
    """

    # Log values stay tensors: converting them would wait for the device in every batch.
    _supports_tf_logs = True
    recording_type = Recording

    @with_options
    def __init__(
        self,
        log_dir: LogDir,
        *,
        model: Any = None,
        optimizer: Any = None,
        **options: Unpack[OptionArguments],
    ) -> None:
        super().__init__()
        self._options = Options(log_dir, **options)
        self._trained = (model, optimizer)
        self._traced = TracedMarks()

    # -- custom loops --------------------------------------------------------------------------------

    _loop: Optional[CustomLoop]

    def close(self) -> None:
        """Write what is left of a custom loop; the loop continues unrecorded."""
        # Stop the recording of a fit that an exception ended.
        self._stop()
        super().close()

    def step(self) -> ContextManager[None]:
        """Wrap one step of a custom loop, from before it asks for its batch to after the update."""
        loop = self._loop
        # Without a call that most steps do not need.
        if loop is None or loop.is_elastic:
            loop = self._recording_of_loop()
        step: ContextManager[None] = loop
        return step

    # Not decorated: autograph's own ways to skip a function take longer than the rest of a step.
    def mark(self, name: str, tensors: Any = None) -> None:
        """Mark a moment of the step: the batch arrived, the gradients are ready, or they are reduced.

        Args:
            name: ``"data"``, ``"gradients"`` or ``"reduced"``.
            tensors: the batch or the gradients. In a ``tf.function`` the mark waits for them; elsewhere
                they only give the number of samples or bytes.
        """
        if self._loop is not None:
            self._loop.mark(name, tensors)

    @tf.autograph.experimental.do_not_convert
    def watch(self, tape: Any) -> Any:
        """Return the tape, which now marks its gradients and, if it is Horovod's, their reduction."""
        if self._loop is not None:
            self._loop.watch(tape)
        return tape

    def epoch(self, number: Optional[int] = None) -> ContextManager[None]:
        """Wrap an epoch of a custom loop; epochs without a number are counted from 0."""
        epoch: ContextManager[None] = self._recording_of_loop().epoch(number)
        return epoch

    def _new_recording(self) -> CustomLoop:
        return CustomLoop(*self._trained, self._traced, self._options)

    def _started_recording(self) -> Any:
        if self._loop is not None:
            return self._loop
        # A running ``fit`` has a recording already.
        runs_fit = self._recording is not None
        return self._new_recording() if runs_fit else super()._started_recording()
