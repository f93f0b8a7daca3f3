"""Processes that did not run are named with the time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.step_logs import Job, run_of_job

from stallscope.analysis.findings import find
from stallscope.run import Run

CODE = "processes_suspended"


def run_with(folder: Path, suspended: dict[int, Any]) -> Run:
    run = run_of_job(folder, Job(ranks=4, steps=200, epochs=2))
    logs = tuple(
        replace(log, facts={**log.facts, "suspended": suspended.get(log.rank)}) for log in run.logs
    )
    return replace(run, logs=logs)


def test_the_longest_suspension_comes_first(tmp_path: Path) -> None:
    short, long = {"since_us": 0, "until_us": 4_000_000}, {"since_us": 0, "until_us": 20_000_000}
    run = run_with(tmp_path, {1: [short], 3: [short, long, short, short]})
    (finding,) = [finding for finding in find(run, True) if finding.code == CODE]
    assert finding.title == "Ranks 1 and 3 did not run for a while"
    log = run.last_logs[3]
    assert finding.evidence.startswith(f"Rank 3 on {log.host} did not run for 20 s, from ")
    assert finding.evidence.endswith("; and 2 other times.")


@pytest.mark.parametrize(
    "damaged", [None, 7, [7], [{}], [{"since_us": 5, "until_us": "x"}], [{"since_us": 5}]]
)
def test_without_a_readable_suspension_there_is_no_finding(tmp_path: Path, damaged: Any) -> None:
    run = run_with(tmp_path, {1: damaged})
    assert CODE not in [finding.code for finding in find(run, True)]
