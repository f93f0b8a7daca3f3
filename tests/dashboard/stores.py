"""Stores of collected runs: a few real ones, and thousands that are only listed."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS

from stallscope.catalogue import entry as catalogue_entry
from stallscope.catalogue.collecting import list_runs
from stallscope.catalogue.entry import AnalysisSummary, Entry
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run
from stallscope.dashboard.store import RunSource, SourceContents
from stallscope.parsers import read
from stallscope.run import Run

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

ENTRY = Entry(
    folder="",
    id="",
    name="",
    source="/logs",
    framework="tensorflow",
    model="resnet50",
    ranks=4,
    hosts=("alpha",),
    batch_size=32,
    synthetic=False,
    status="completed",
    started_at=None,
    collected_at=None,
    bytes=1000,
    facts={"model": "resnet50"},
    job="resnet50",
    summary=AnalysisSummary(),
    manifest="",
)


def listed(number: int, **changed: object) -> Entry:
    """The entry of a run that began so many hours ago: ``run-00042``, ever slower."""
    name = f"run-{number:05d}"
    entry = replace(
        ENTRY,
        folder=name,
        id=name,
        name=f"training {number}",
        started_at=catalogue_entry.moment(NOW - timedelta(hours=number)),
        summary=AnalysisSummary(
            steps=600,
            epochs=3,
            samples_per_second=1000.0 + number,
            step_ms=128.0,
            verdict="input" if number % 2 else "compute",
            shares={"input": 0.3, "compute": 0.6, "other": 0.1},
        ),
    )
    return replace(entry, **changed)  # type: ignore[arg-type]


class Listed(RunSource):
    """Runs that are in a list and nowhere else; counts how often it is read."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = list(entries)
        self.read = 0
        self.loaded: list[str] = []

    def state(self) -> Hashable:
        return tuple(entry.folder for entry in self.entries)

    def contents(self) -> SourceContents:
        self.read += 1
        return SourceContents([(entry.folder, entry) for entry in self.entries])

    def version(self, entry: Entry) -> Hashable:
        return None

    def load(self, key: str, entry: Entry) -> Run:
        self.loaded.append(key)
        raise AssertionError("listing loads nothing")


def just_grown(logs: Path) -> None:
    """Let logs have grown just now, also for a busy machine that looks at them minutes later."""
    just_now = time.time() + PATIENCE_SECONDS
    for path in logs.iterdir():
        os.utime(path, (just_now, just_now))


class GrowingLogs:
    """The logs of a job of which a share is there so far."""

    def __init__(self, tmp_path: Path, job: Job, share: float) -> None:
        write_job(tmp_path / "whole", job)
        self.folder = tmp_path / "logs"
        self.folder.mkdir()
        self.files = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
        self.grow(share)

    def grow(self, share: float) -> None:
        """Let the logs have this share of their bytes."""
        for name, data in self.files.items():
            (self.folder / name).write_bytes(data[: int(len(data) * share)])
        just_grown(self.folder)


def collect_into(store: Path, *jobs: Job) -> None:
    """Simulate jobs and collect them, the way ``stallscope collect`` does."""
    for job in jobs:
        logs = store.parent / f"{store.name}-logs" / job.run_id
        write_job(logs, job)
        place = save_run(read(str(logs))[0], store)
        list_runs([(load_run(place), place)], store)
