"""``StepLogger`` for Keras 2: a callback of ``model.fit``, or a context for custom loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ContextManager, Optional

import tensorflow as tf

from ..format import CHECKPOINT, VALIDATION
from ..keras_common.fit_callback import FitCallback
from ..options import LogDir, OptionArguments, Options, with_options
from .custom_loop import CustomLoop
from .keras_2 import keras
from .recording import Recording

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StepLogger(FitCallback, keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
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
        self._loop: Optional[CustomLoop] = None
        self._closed = False

    # -- custom loops --------------------------------------------------------------------------------

    def __enter__(self) -> "StepLogger":
        self._closed = False
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left of a custom loop; the loop continues unrecorded."""
        self._closed = True
        # Stop the recording of a fit that an exception ended.
        self._stop()
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()

    def step(self) -> ContextManager[None]:
        """Wrap one step of a custom loop, from before it asks for its batch to after the update."""
        return self._custom_loop()

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
        return self._custom_loop().epoch(number)

    def validation(self) -> ContextManager[None]:
        """Wrap the validation between steps."""
        return self._custom_loop().interval(VALIDATION)

    def checkpoint(self) -> ContextManager[None]:
        """Wrap the saving of a checkpoint between steps."""
        return self._custom_loop().interval(CHECKPOINT)

    def _custom_loop(self) -> CustomLoop:
        """Return the loop's recording, started on first use: ranks and checkpoints are known then."""
        if self._loop is not None:
            return self._loop
        loop = CustomLoop(*self._trained, self._options)
        # A running ``fit`` has a recording already.
        if not self._closed and self._recording is None:
            self._loop = loop
            loop.start()
        return loop
