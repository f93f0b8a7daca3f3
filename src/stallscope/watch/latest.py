"""The latest figures of the runs that are watched, for those who ask or are told regularly."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from stallscope.analysis import Analysis
from stallscope.reports.base import Metric
from stallscope.reports.run.metrics import metrics


class LatestFigures:
    """The figures of every run at its last look; several threads may use it."""

    def __init__(self) -> None:
        self._by_run: dict[str, list[Metric]] = {}
        self._lock = threading.Lock()

    def measured(self, analysis: Analysis) -> None:
        """Replace the figures of a run."""
        found = metrics(analysis)
        with self._lock:
            self._by_run[analysis.run.id] = found

    def all(self) -> list[Metric]:
        """Return the figures of all runs, with the samples of one name together."""
        with self._lock:
            runs = list(self._by_run.values())
        together: dict[str, list[Metric]] = {}
        for metric in (metric for run in runs for metric in run):
            together.setdefault(metric.name, []).append(metric)
        return [_joined(those) for those in together.values()]


def _joined(those: Sequence[Metric]) -> Metric:
    return replace(those[0], samples=[sample for one in those for sample in one.samples])
