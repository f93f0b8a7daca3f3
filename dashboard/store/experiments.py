"""List the runs of an MLflow experiment by one search; fetch a run's logs on demand."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from stallscope.catalogue import entry as catalogue_entry
from stallscope.catalogue.entry import SHARES, AnalysisSummary, Entry
from stallscope.collector.mlflow.client import search_runs
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.opening import newest_run, open_runs
from stallscope.reports.mlflow_run import NONE, PREFIX
from stallscope.run import Run
from stallscope.words import CAUSES, VERDICT_CAUSES, known

from .run_sources import RunSource, SourceContents

# Reloads of the list that come sooner show the previous state.
_SEARCH_INTERVAL_S = 15.0
_STATUSES = {"FINISHED": "completed", "RUNNING": "running", "FAILED": "failed", "KILLED": "failed"}


class Experiment(RunSource):
    """The runs of an experiment, with the tags and metrics that Stallscope has written to them.

    Args:
        name: the experiment's name.
        filter_string: selects runs, in MLflow's syntax.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self, name: str, filter_string: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._filter = filter_string
        self._clock = clock
        self._lock = Lock()
        self._searched_at: float | None = None
        self._tracked_runs: list[Any] = []

    def state(self) -> Hashable:
        return tuple(map(_version, self._runs()))

    def contents(self) -> SourceContents:
        runs = self._runs()
        gaps = {run.info.run_id: _metrics(run).get("gap") for run in runs}
        return SourceContents(
            [(run.info.run_id, _entry(run)) for run in runs],
            gaps={key: gap for key, gap in gaps.items() if gap is not None},
        )

    def version(self, entry: Entry) -> Hashable:
        return entry.manifest

    def load(self, key: str, entry: Entry) -> Run:
        try:
            # The list has a row per MLflow run, whose logs may be of several attempts.
            return newest_run(entry.source, open_runs(entry.source))
        except NotFoundError as error:
            # The run exists, but its logs contain no steps.
            raise UnreadableError(str(error)) from error

    def _runs(self) -> list[Any]:
        with self._lock:
            now = self._clock()
            if self._searched_at is None or now - self._searched_at >= _SEARCH_INTERVAL_S:
                self._tracked_runs = search_runs(self._name, self._filter)
                self._searched_at = now
            return self._tracked_runs


def _version(run: Any) -> tuple[Hashable, ...]:
    """Return values that differ once the list shows something else for a run."""
    data = (*_tags(run).items(), *_metrics(run).items())
    return run.info.run_id, run.info.run_name, run.info.status, run.info.end_time, data


def _entry(run: Any) -> Entry:
    info, tags, metrics = run.info, _tags(run), _metrics(run)
    ranks = metrics.get("size")
    return Entry(
        folder=info.run_id,
        id=info.run_id,
        name=catalogue_entry.text(info.run_name) or info.run_id,
        source=f"mlflow:{info.run_id}",
        framework=None,
        model=None,
        # 0: not known.
        ranks=0 if ranks is None else int(ranks),
        hosts=(),
        batch_size=None,
        synthetic=tags.get("synthetic") == "true",
        status=_STATUSES.get(info.status, ""),
        started_at=_timestamp(info.start_time),
        collected_at=None,
        bytes=0,
        facts={},
        # Model and settings are in its logs: it cannot be a baseline before they are read.
        job=info.run_id,
        summary=_summary(tags, metrics),
        # A run that has ended in the meantime has more logs.
        manifest=f"{info.status} {info.end_time}",
    )


def _tags(run: Any) -> dict[str, str]:
    """Return the tags that Stallscope has written to a run, without empty ones."""
    return {key: value for key, value in _written_data(run.data.tags).items() if value != NONE}


def _metrics(run: Any) -> dict[str, float]:
    numbers = {
        key: catalogue_entry.number(value) for key, value in _written_data(run.data.metrics).items()
    }
    return {key: value for key, value in numbers.items() if value is not None}


def _written_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data that Stallscope has written, by keys without its prefix."""
    return {key.removeprefix(PREFIX): data[key] for key in data if key.startswith(PREFIX)}


def _summary(tags: Mapping[str, str], metrics: Mapping[str, float]) -> AnalysisSummary:
    shares = {name: metrics.get(f"{name}_share") for name in SHARES}
    recorded = {name: share for name, share in shares.items() if share is not None}
    return AnalysisSummary(
        samples_per_second=metrics.get("samples_per_second"),
        step_ms=metrics.get("step_ms_mean"),
        verdict=tags.get("bottleneck"),
        fault={"true": True, "false": False}.get(tags.get("fault", "")),
        cause=known(tags.get("cause"), VERDICT_CAUSES),
        named_ranks=tuple(int(rank) for rank in _split(tags, "ranks") if rank.isdecimal()),
        named_hosts=tuple(_split(tags, "hosts")),
        shares=recorded if _add_up(recorded) else {},
    )


def _add_up(shares: Mapping[str, float]) -> bool:
    """Whether the shares are those by cause. Earlier versions wrote a ledger with imbalance."""
    return math.isclose(sum(shares.get(name, 0.0) for name in CAUSES), 1.0, abs_tol=1e-6)


def _split(tags: Mapping[str, str], name: str) -> list[str]:
    return [value for value in tags.get(name, "").split(",") if value]


def _timestamp(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return catalogue_entry.moment(datetime.fromtimestamp(milliseconds / 1000, UTC))
