"""``StepLogger`` for Lightning: adding it to the Trainer's callbacks is all a user does."""

from __future__ import annotations

import os
import sys
from time import monotonic_ns
from typing import Any, Optional, Union

from ..format import VALIDATION
from ..options import checked
from .recording import TrainerRecording

# The two names of one library. Its Trainer takes callbacks of its own name only.
if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback


class StepLogger(Callback):  # type: ignore[misc]  # not installed beside the app
    """Record where the time of every step goes, on every rank, into one small file per rank.

        Trainer(callbacks=[StepLogger("logs/run-42")]).fit(model, loader)

    Args:
        log_dir: folder for the logs; the ranks may share it, and a later job gets a run of its own.
        run_name: a name for people.
        synthetic: whether the data is synthetic: this run is a baseline.
        batch_size: samples per rank and batch; read from the batches where it is not given.
        mlflow_run_id: the MLflow run that the log is uploaded to while it grows; ``MLFLOW_RUN_ID``'s
            where it is not given. Needs mlflow-skinny on the ranks, and may be the same for all of them.
        sink: ``"file"``; ``"logging"`` for workers that share no disk and keep what they print: records
            of the log ``stallscope.steps``, from which parsers have the step log back, and no folder is
            needed; or ``"both"``.
        sample_after: for very long runs: after so many steps, one in ``sample_one_in`` is recorded in
            full and the others as sums, on all ranks the same ones.
        max_file_mb: a log that has reached this size goes on in another file.
        flush_seconds: how often, at least, the log on disk is brought up to date.
        stages: put hooks on the gradients. Without them only the host's times of input and step are
            recorded.

    Raises:
        TypeError, ValueError: for arguments that cannot be meant. Nothing else is ever raised:
            recording ends with one warning, and training goes on.
    """

    def __init__(
        self,
        log_dir: Union[str, "os.PathLike[str]", None],
        *,
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
        self._recording: Optional[TrainerRecording] = None
        self._validation_began = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._stop()
        self._recording = TrainerRecording(trainer, pl_module, self._options)
        self._recording.begin()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.loop_begins(object(), getattr(trainer, "train_dataloader", None))
            self._recording.epoch_begins(trainer.current_epoch)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.epoch_ends()

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._recording is not None:
            self._recording.batch_begins(batch, batch_idx)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._recording is not None:
            self._recording.batch_ends(batch)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._validation_began = monotonic_ns()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._recording is not None:
            self._recording.pause_ends(VALIDATION, self._validation_began)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.stop()
