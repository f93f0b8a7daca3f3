"""``StepLogger`` for Lightning: a callback of the Trainer."""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Optional

from ..options import LogDir, OptionArguments, Options, with_options
from ..step_log.format import VALIDATION
from .recording import LightningRecording

if TYPE_CHECKING:
    from typing_extensions import Unpack


# Two names of one library. A Trainer accepts only callbacks of the same name.
if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class StepLogger(Callback):  # type: ignore[misc]  # not installed with the app
    """Record where the time of every step goes, on every rank, into one small file per rank.

        Trainer(callbacks=[StepLogger("logs/run-42")]).fit(model, loader)

    Hooks on the gradients record when they are ready and reduced.

    Args:
        log_dir, options: see ``__init__``.
    """

    @with_options
    def __init__(self, log_dir: LogDir, **options: Unpack[OptionArguments]) -> None:
        super().__init__()
        self._options = Options(log_dir, **options)
        self._recording: Optional[LightningRecording] = None
        self._validation_start = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._stop()
        self._recording = LightningRecording(trainer, pl_module, self._options)
        self._recording.begin()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.begin_loop(object(), getattr(trainer, "train_dataloader", None))
            self._recording.begin_epoch(trainer.current_epoch)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.end_epoch()

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._recording is not None:
            self._recording.begin_batch(batch, batch_idx)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._recording is not None:
            self._recording.end_batch(batch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.begin_pause(VALIDATION)
        self._validation_start = monotonic_ns()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.end_pause(VALIDATION, self._validation_start)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.stop()
