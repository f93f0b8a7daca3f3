"""Add series to an MLflow run's metrics, next to those of training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from stallscope.collector.mlflow.client import MlflowRun, convert_errors
from stallscope.errors import UsageError

from .generations import ExportedRun
from .scalars import Point, scalars_of

_PLACE = re.compile(r"mlflow:([0-9a-f]{32})")
# Servers refuse requests with more metrics.
_AT_A_TIME = 1000


def run_id_of(place: str) -> str:
    """Return the MLflow run that ``--out`` names.

    Raises:
        UsageError: if it names none.
    """
    match = _PLACE.fullmatch(place)
    if match is None:
        raise UsageError(f"--out {place}: give mlflow:RUN_ID with 32 hex digits")
    return match[1]


def write_mlflow(exported: ExportedRun, place: str) -> None:
    """Add the series to the run's metrics. Repeating it adds no points.

    Raises:
        MissingExtraError: without mlflow.
        NotFoundError: if there is no such run.
        UnreadableError: if the server cannot be reached, or refuses the metrics.
    """
    MlflowSeries(place).add(exported, list(scalars_of(exported).points()))


class MlflowSeries:
    """Adds points to an MLflow run's metrics; the server keeps repeated ones once."""

    def __init__(self, place: str) -> None:
        """Find the run.

        Raises:
            MissingExtraError: without mlflow.
            NotFoundError: if there is no such run.
            UnreadableError: if the server cannot be reached.
        """
        self._run = MlflowRun(run_id_of(place))
        self.last_step = -1

    def add(self, exported: ExportedRun, points: Sequence[Point]) -> None:
        """Log points.

        Raises:
            UnreadableError: if the server cannot be reached, or refuses the metrics.
        """
        from mlflow.entities import Metric

        metrics = (
            Metric(name, value, round(seconds * 1000), step)
            for step, seconds, values in points
            for name, value in values.items()
        )
        with convert_errors(self._run.where):
            while batch := list(islice(metrics, _AT_A_TIME)):
                self._run.client.log_batch(self._run.id, metrics=batch)
        self.last_step = points[-1][0]

    def close(self) -> None:
        """Do nothing: all points are on the server."""
