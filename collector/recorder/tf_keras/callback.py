"""``StepLogger`` for Keras: a callback of ``model.fit``, or a context for loops of the user's own."""

from __future__ import annotations

import os
from typing import Any, ContextManager, Optional, Union

import tensorflow as tf

from ..fit_callback import FitCallback
from ..format import CHECKPOINT, VALIDATION
from ..options import checked
from .keras_2 import keras
from .own_loop import OwnLoop
from .recording import Recording


class StepLogger(FitCallback, keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Record where the time of every step goes, on every rank, into one small file per rank.

        model.fit(data, callbacks=[StepLogger("logs/run-42")])

    A training loop without ``fit`` says itself what a step is, and when its parts are there:

        with StepLogger("logs/run-42", model=model, optimizer=optimizer) as log:
            for batch in data:
                with log.step():
                    ...

    Args:
        log_dir: folder for the logs; the ranks may share it, and a later job gets a run of its own.
        model, optimizer: what such a loop trains; ``fit`` has its own.
        run_name: a name for people.
        synthetic: whether the data is synthetic: this run is a baseline.
        batch_size: samples per rank and step; read from the batches where it is not given.
        mlflow_run_id: the MLflow run that the log is uploaded to while it grows; ``MLFLOW_RUN_ID``'s
            where it is not given. Needs mlflow-skinny on the ranks, and may be the same for all of them.
        sink: ``"file"``; ``"logging"`` for workers that share no disk and keep what they print: records
            of the log ``stallscope.steps``, from which parsers have the step log back, and no folder is
            needed; or ``"both"``.
        sample_after: for very long runs: after so many steps, one in ``sample_one_in`` is recorded in
            full and the others as sums, on all ranks the same ones.
        max_file_mb: a log that has reached this size goes on in another file.
        flush_seconds: how often, at least, the log on disk is brought up to date.
        stages: put timestamps into the training graph. Without them only the host's begin and end of
            every step are recorded.

    Raises:
        TypeError, ValueError: for arguments that cannot be meant. Nothing else is ever raised:
            recording ends with one warning, and training goes on.
    """

    # Log values stay tensors: converting them would wait for the device in every batch.
    _supports_tf_logs = True

    def __init__(
        self,
        log_dir: Union[str, "os.PathLike[str]", None],
        *,
        model: Any = None,
        optimizer: Any = None,
        run_name: Optional[str] = None,
        synthetic: bool = False,
        batch_size: Optional[int] = None,
        mlflow_run_id: Optional[str] = None,
        sink: str = "file",
        sample_after: Optional[int] = None,
        sample_one_in: int = 20,
        max_file_mb: Optional[float] = None,
        flush_seconds: float = 1.0,
        stages: bool = True,
    ) -> None:
        super().__init__()
        self._options = checked(
            log_dir,
            run_name=run_name,
            synthetic=synthetic,
            batch_size=batch_size,
            mlflow_run_id=mlflow_run_id,
            sink=sink,
            sample_after=sample_after,
            sample_one_in=sample_one_in,
            max_file_mb=max_file_mb,
            flush_seconds=flush_seconds,
            stages=stages,
        )
        self._trained = (model, optimizer)
        self._loop: Optional[OwnLoop] = None
        self._closed = False

    def _recording_of_fit(self) -> Recording:
        return Recording(self.model, self._options)

    # -- loops of the user's own ---------------------------------------------------------------------

    def __enter__(self) -> "StepLogger":
        self._closed = False
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left of a loop; it goes on unrecorded."""
        self._closed = True
        # Of a fit that an exception has ended.
        self._stop()
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop()

    def step(self) -> ContextManager[None]:
        """Around one step of a loop: from before its batch is asked for to after the update."""
        return self._own_loop()

    # Plain: autograph's ways to leave something as it is take longer than all the rest of a step.
    def mark(self, name: str, tensors: Any = None) -> None:
        """In a step: the batch is there, or the last of the gradients, or all of them are reduced.

        Args:
            name: ``"data"``, ``"gradients"`` or ``"reduced"``.
            tensors: the batch or the gradients. In a ``tf.function`` the mark waits for them; elsewhere
                they only tell how many samples or bytes there are.
        """
        if self._loop is not None:
            self._loop.mark(name, tensors)

    @tf.autograph.experimental.do_not_convert
    def watch(self, tape: Any) -> Any:
        """The tape, which from now on marks its gradients and, if it is Horovod's, their reduction."""
        if self._loop is not None:
            self._loop.watch(tape)
        return tape

    def epoch(self, number: Optional[int] = None) -> ContextManager[None]:
        """Around an epoch of such a loop; counted from 0 where it has no number from elsewhere."""
        return self._own_loop().epoch(number)

    def validation(self) -> ContextManager[None]:
        """Around the validation between steps."""
        return self._own_loop().interval(VALIDATION)

    def checkpoint(self) -> ContextManager[None]:
        """Around the saving of a checkpoint between steps."""
        return self._own_loop().interval(CHECKPOINT)

    def _own_loop(self) -> OwnLoop:
        """The loop's recording, begun with the first use: ranks and checkpoints are known by then."""
        if self._loop is not None:
            return self._loop
        loop = OwnLoop(*self._trained, self._options)
        # A ``fit`` that runs is recorded already.
        if not self._closed and self._recording is None:
            self._loop = loop
            loop.start()
        return loop
