"""``StepLogger`` for Keras 3: a callback of ``model.fit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from ..keras_common.fit_callback import FitCallback
from ..options import LogDir, OptionArguments, Options, with_options
from .recording import Recording

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StepLogger(FitCallback, keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Record where the time of every step goes, on every rank, into one small file per rank.

        model.fit(data, callbacks=[StepLogger("logs/run-42")])

    Args:
        log_dir, options: see ``__init__``.
    """

    recording_type = Recording

    @with_options
    def __init__(self, log_dir: LogDir, **options: Unpack[OptionArguments]) -> None:
        super().__init__()
        self._options = Options(log_dir, **options)
