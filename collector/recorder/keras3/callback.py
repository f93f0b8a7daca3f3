"""``StepLogger`` for Keras 3: adding it to ``model.fit`` is all a user does."""

from __future__ import annotations

import os
from typing import Optional, Union

import keras

from ..fit_callback import FitCallback
from ..options import checked
from .recording import Recording


class StepLogger(FitCallback, keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Record where the time of every step goes, on every rank, into one small file per rank.

        model.fit(data, callbacks=[StepLogger("logs/run-42")])

    Args:
        log_dir: folder for the logs; the ranks may share it, and a later job gets a run of its own.
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
        stages: timestamp when gradients are ready. Without it only the host's times are recorded.

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

    def _recording_of_fit(self) -> Recording:
        return Recording(self.model, self.params, self._options)
