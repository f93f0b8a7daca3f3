"""Pass Keras' callback events to a recording, for every version of Keras; tell which one it is."""

from __future__ import annotations

import copy
import logging
import os
import sys
from importlib import metadata
from typing import Any, Dict, MutableMapping, Optional, Type, TypeVar
from weakref import WeakKeyDictionary

from ..options import Options, check_probe_input
from .fit_recording import FitRecording, fit_frame, recording_of, stop_abandoned

logger = logging.getLogger("stallscope")

_Data = TypeVar("_Data")
# How many batches of which data are fetched ahead; 0 for none.
_fetched_ahead: MutableMapping[Any, int] = WeakKeyDictionary()


def probe_input(data: _Data, batches: int = 20) -> _Data:
    """Measure what faster input gains, in each ``fit`` on this data that is recorded.

        model.fit(probe_input(data), callbacks=[StepLogger("logs/run-42")])

    ``StepLogger(probe_input=20)`` does so in every ``fit`` on any data.

    Args:
        data: as ``fit`` takes it, but no arrays.
        batches: so many are fetched ahead, as in ``StepLogger``; 0 for none, whatever StepLogger says.

    Returns:
        The same data.

    Raises:
        TypeError: for arrays and other data in memory.
        ValueError: if ``batches`` is no number of batches.
    """
    number = check_probe_input(batches) or 0
    try:
        _fetched_ahead[data] = number
    except TypeError:
        what = (
            "data is a data set, a loader or a sequence of batches, not %s: it is in memory already"
        )
        raise TypeError(what % type(data).__name__) from None
    return data


class FitCallback:
    """A mixin for Keras' ``Callback``, to come first among the base classes.

    It defines no batch hooks: with one, Keras would convert the logs in every batch and so wait for the
    device. A wrapper around the train function sees the steps instead.
    """

    #: Set by Keras.
    model: Any
    #: Set by Keras' ``fit``; not where a training loop calls the callback itself.
    params: Optional[Dict[str, Any]] = None
    #: Records a fit with this version of Keras.
    recording_type: Type[FitRecording]
    _options: Options
    _recording: Optional[FitRecording] = None

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        recording = recording_of(self.model)
        if recording is not None and recording.is_of_this_fit:
            logger.warning(
                "stallscope: this training is recorded already; one StepLogger is enough"
            )
            return
        if recording is not None:
            # An exception has ended its fit.
            recording.stop()
        self._stop()
        stop_abandoned()
        self._record()

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        recording = self._recording
        if recording is not None and recording.running and not recording.in_place:
            # Keras made the function again, as after freezing layers: the new one is not patched.
            self._stop()
            self._record()
        if self._recording is not None:
            self._recording.begin_epoch(epoch)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._recording is not None:
            self._recording.end_epoch()

    def on_test_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._recording is not None:
            self._recording.begin_validation()

    def on_test_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._recording is not None:
            self._recording.end_validation()

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._stop()

    def _record(self) -> None:
        recording = self.recording_type(self.model, self.params, self._options_of_fit())
        recording.start()
        if recording.running:
            self._recording = recording
        else:
            recording.stop()

    def _options_of_fit(self) -> Options:
        """Return the options, with the number of batches to fetch ahead that was set for the data."""
        fit = fit_frame(self.model, self.recording_type.fit_variable)
        try:
            batches = None if fit is None else _fetched_ahead.get(fit.f_locals.get("x"))
        except Exception:  # arrays have no hash, and no error may reach training
            batches = None
        if batches is None:
            return self._options
        options = copy.copy(self._options)
        options.probe_input = batches
        return options

    def _stop(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.stop()


# -- Find out whether a program trains with Keras 2 or 3, which have different internals ----------


def is_keras_2() -> bool:
    """Return whether it is Keras 2, as imported, or otherwise as ``import keras`` would find it.

    ``tf_keras`` is Keras 2 installed with Keras 3, and so is ``tf.keras`` with
    ``TF_USE_LEGACY_KERAS``.
    """
    if "tf_keras" in sys.modules or os.environ.get("TF_USE_LEGACY_KERAS", "0") in (
        "1",
        "true",
        "True",
    ):
        return True
    version = getattr(sys.modules.get("keras"), "__version__", None)
    if version is None:
        try:
            version = metadata.version("keras")
        except metadata.PackageNotFoundError:
            # TensorFlow before 2.4 has its own Keras.
            return True
    return str(version).startswith("2.")
