"""A store of three runs for commands."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import Commands, collect_job
from support.step_logs import Job

from stallscope.cli.main import main

JOB = Job(ranks=2, steps=200, allreduce_ms=0.5)
JOBS = (
    replace(JOB, run_id="slow", slow={(1, "input"): 9.0}),
    replace(JOB, run_id="base", facts={"synthetic": True}),
    replace(JOB, run_id="one", ranks=1, facts={"synthetic": True, "run_name": "alone"}),
)


@pytest.fixture(scope="session")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of three runs; read-only."""
    folder = tmp_path_factory.mktemp("three-runs")
    for job in JOBS:
        collect_job(folder, job)
    return folder / "store"


@pytest.fixture
def at_store(
    three_runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Commands:
    """Run a command line next to a copy of the store; return status, output, errors."""
    shutil.copytree(three_runs, tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def command(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([str(word) for word in words])
        return (status, *capsys.readouterr())

    return command
