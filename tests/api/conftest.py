"""Runs of every kind that logs record, opened for analysts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.epoch_logs import EpochJob, write_keras
from support.generations import GROWN_AND_SHRUNK, write_generations
from support.machines import began_ms, history, write_metrics
from support.printed_steps import PROGRAMS
from support.step_logs import Job, run_of_job, write_job

import stallscope as ss

JOB = Job(
    ranks=3,
    steps=240,
    epochs=3,
    validation_ms=50.0,
    hosts=("alpha", "beta"),
    slow={(2, "input"): 9.0},
    facts={"run_name": "slow"},
)


def _job(folder: Path, job: Job = JOB) -> Path:
    write_job(folder, job)
    return folder


def _one_log_of_many(folder: Path) -> Path:
    for path in write_job(folder, JOB)[1:]:
        path.unlink()
    return folder


def _machines(folder: Path) -> Path:
    begin = began_ms(run_of_job(folder, JOB))
    write_metrics(folder, {"system/cpu_utilization_percentage": history(begin, [10.0, 90.0, 50.0])})
    return folder


def _generations(folder: Path) -> Path:
    write_generations(folder, GROWN_AND_SHRUNK)
    return folder


def _epochs_only(folder: Path) -> Path:
    return write_keras(folder, EpochJob(ranks=2, epoch_s=300.0, epochs=4))


def _printed_lines(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "run.log"
    path.write_bytes(PROGRAMS["maskrcnn-benchmark"].text())
    return path


KINDS: dict[str, Callable[[Path], Path]] = {
    "steps": _job,
    "one rank": lambda folder: _job(folder, Job(ranks=1, steps=120)),
    "one log of many": _one_log_of_many,
    "no stages": lambda folder: _job(folder, Job(ranks=2, steps=120, stamps=False)),
    "machines": _machines,
    "generations": _generations,
    "epochs only": _epochs_only,
    "printed lines": _printed_lines,
}


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ss.Run]:
    """Write the logs of a kind of run once, and open it; tests must not change what they share."""
    runs: dict[str, ss.Run] = {}

    def open_kind(kind: str) -> ss.Run:
        if kind not in runs:
            folder = tmp_path_factory.mktemp("logs") / "job"
            runs[kind] = ss.open_run(KINDS[kind](folder))
        return runs[kind]

    return open_kind


@pytest.fixture(scope="session")
def analysed(opened: Callable[[str], ss.Run]) -> Callable[[str], ss.Analysis]:
    """Analyse a kind of run once."""
    analyses: dict[str, ss.Analysis] = {}

    def analyse_kind(kind: str) -> ss.Analysis:
        if kind not in analyses:
            analyses[kind] = ss.analyse(opened(kind))
        return analyses[kind]

    return analyse_kind
