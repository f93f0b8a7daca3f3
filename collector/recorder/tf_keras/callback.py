"""``StepLogger`` for Keras: adding it to ``model.fit`` is all a user does."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Dict, Optional, Union

import tensorflow as tf

from ..options import Options
from .recording import Recording, recording_of, stop_abandoned

logger = logging.getLogger("stallscope")


class StepLogger(tf.keras.callbacks.Callback):  # type: ignore[misc]  # TensorFlow ships no types
    """Record where the time of every step goes, on every rank, into one small file per rank.

        model.fit(data, callbacks=[StepLogger("logs/run-42")])

    Args:
        log_dir: folder for the logs; the ranks may share it, and a later job gets a run of its own.
        run_name: a name for people.
        synthetic: whether the data is synthetic: this run is a baseline.
        batch_size: samples per rank and step; read from the batches where it is not given.
        flush_seconds: how often, at least, the log on disk is brought up to date.
        stages: put stamps into the training graph. Without them only the host's begin and end of
            every step are recorded.

    Raises:
        TypeError, ValueError: for arguments that cannot be meant. Nothing else is ever raised:
            recording ends with one warning, and training goes on.
    """

    # Log values stay tensors: converting them would wait for the device in every batch.
    _supports_tf_logs = True

    def __init__(
        self,
        log_dir: Union[str, "os.PathLike[str]"],
        *,
        run_name: Optional[str] = None,
        synthetic: bool = False,
        batch_size: Optional[int] = None,
        flush_seconds: float = 1.0,
        stages: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(log_dir, (str, os.PathLike)):
            raise TypeError("log_dir is the folder for the logs, not %r" % (log_dir,))
        if batch_size is not None and batch_size < 1:
            raise ValueError("batch_size is a number of samples, not %r" % (batch_size,))
        if not flush_seconds > 0:
            raise ValueError("flush_seconds is a time above 0, not %r" % (flush_seconds,))
        self._options = Options(
            log_dir=Path(log_dir).absolute(),
            run_name=run_name,
            synthetic=bool(synthetic),
            batch_size=batch_size,
            flush_seconds=float(flush_seconds),
            stages=bool(stages),
        )
        self._recording: Optional[Recording] = None

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        other = recording_of(self.model)
        if other is not None and other.is_of_this_fit:
            logger.warning(
                "stallscope: this training is recorded already; one StepLogger is enough"
            )
            return
        if other is not None:
            # An exception has ended its fit.
            other.stop()
        self._stop()
        stop_abandoned()
        recording = Recording(self.model, self._options)
        recording.start()
        if recording.running:
            self._recording = recording
        else:
            recording.stop()

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._recording is not None:
            self._recording.epoch_begins(epoch)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._recording is not None:
            self._recording.epoch_ends()

    def on_test_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._recording is not None:
            self._recording.validation_begins()

    def on_test_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._recording is not None:
            self._recording.validation_ends()

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._stop()

    def _stop(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.stop()
