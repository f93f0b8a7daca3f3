"""The latest figures of watched runs, to be scraped or sent."""

from __future__ import annotations

import threading
from dataclasses import replace

from stallscope.analysis import Analysis
from stallscope.reports.base import Labels, Metric
from stallscope.reports.run.metrics import metrics


class LatestFigures:
    """The figures of every run at its last look; several threads may use it."""

    def __init__(self) -> None:
        #: By the id of the run, then by the name of the figure.
        self._by_run: dict[str, dict[str, Metric]] = {}
        self._lock = threading.Lock()

    def measured(self, analysis: Analysis) -> None:
        """Replace the figures of a run."""
        figures = {metric.name: metric for metric in metrics(analysis)}
        with self._lock:
            self._by_run[analysis.run.id] = figures

    def all(self) -> list[Metric]:
        """Return the figures of all runs, with the samples of one name together."""
        with self._lock:
            runs = list(self._by_run.values())
        metrics = {name: metric for run in runs for name, metric in run.items()}
        return [replace(metric, samples=self.samples(name)) for name, metric in metrics.items()]

    def samples(self, name: str) -> list[tuple[Labels, float | None]]:
        """Return the samples of one figure for all runs."""
        with self._lock:
            metrics = [run[name] for run in self._by_run.values() if name in run]
        return [sample for metric in metrics for sample in metric.samples]
