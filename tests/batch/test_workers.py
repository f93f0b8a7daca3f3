"""Parallel worker processes, and one that dies."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.deadly import Deadly
from support.step_logs import Job, write_job

from stallscope.analysis import analyse
from stallscope.batch.units import Settings, Unit
from stallscope.batch.worker import KnownRun
from stallscope.batch.workers import Failed, Workers
from stallscope.parsers import read
from stallscope.reports.report_formats import ReportOptions
from stallscope.reports.run.json_content import json_content

JOB = Job(ranks=2, steps=60)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    options = ReportOptions(generated_at=datetime(2026, 11, 21, tzinfo=UTC))
    return Settings("terminal", options, scratch=tmp_path, out=tmp_path / "out").of(4)


@pytest.mark.any_versions
@pytest.mark.slow
def test_a_run_that_kills_its_process_fails_alone(settings: Settings, tmp_path: Path) -> None:
    units: list[Unit] = []
    for number in range(4):
        write_job(tmp_path / str(number), replace(JOB, run_id=f"run-{number}"))
        units.append(Unit(str(tmp_path / str(number))))
    units[1] = Deadly(units[1].place)
    counts: list[int] = []
    with Workers(settings, jobs=2) as workers:
        results = dict(workers.each("identify", [(unit,) for unit in units], counts.append))
    assert sorted(results) == [0, 1, 2, 3]
    assert isinstance(results[1], Failed)
    assert "the process that read it was killed" in results[1].message
    looked = [run for at in (0, 2, 3) for run in results[at]]
    assert all(isinstance(known, KnownRun) for known in looked)
    assert [known.run.id for known in looked] == ["run-0", "run-2", "run-3"]
    assert counts[-1] == 4


def test_a_baseline_analysed_earlier_gives_the_same_report(tmp_path: Path) -> None:
    write_job(tmp_path / "run", replace(JOB, slow={(1, "input"): 9.0}))
    write_job(tmp_path / "base", replace(JOB, run_id="base", facts={"synthetic": True}))
    run, base = (read(str(tmp_path / name))[0] for name in ("run", "base"))
    assert json_content(analyse(run, analyse(base))) == json_content(analyse(run, base))
