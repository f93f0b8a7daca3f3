"""``--since``: its meaning, and the runs that it selects."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.started import began_at
from support.step_logs import Job, write_job

from stallscope.cli.main import main
from stallscope.cli.report_settings import parse_since
from stallscope.errors import UsageError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T08:30", datetime(2026, 11, 1, 8, 30, tzinfo=UTC)),
        ("2026-11-01T08:30+02:00", datetime(2026, 11, 1, 6, 30, tzinfo=UTC)),
        ("7d", NOW - timedelta(days=7)),
        ("12h", NOW - timedelta(hours=12)),
        ("90min", NOW - timedelta(minutes=90)),
        ("2w", NOW - timedelta(weeks=2)),
    ],
)
def test_dates_and_ages_are_understood(text: str, moment: datetime) -> None:
    assert parse_since(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "7", "7y", "-7d", "2026-13-01", "999999w"])
def test_anything_else_is_an_error_of_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"give a date such as 2026-11-01, or an age such as 7d"):
        parse_since(text, NOW)


def test_runs_of_folders_and_stores_are_selected_by_start_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC)
    for name, age in (("new", 1), ("old", 9), ("unknown", None)):
        write_job(tmp_path / name, Job(ranks=2, steps=60, run_id=name))
        began_at(tmp_path / name, None if age is None else now - timedelta(days=age))
    monkeypatch.chdir(tmp_path)
    assert main(["collect", "new", "old", "--to", "store"]) == 0
    capsys.readouterr()
    for sources in (["new", "old", "unknown"], ["store"]):
        assert main(["report", *sources, "--since", "7d", "--format", "json"]) == 0
        printed = capsys.readouterr()
        assert [document["run"]["id"] for document in json.loads(printed.out)] == ["new"]
        assert ("1 run is left out" in printed.err) == (len(sources) > 1)
    assert main(["report", "old", "--since", "1d", "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == []
    assert "no run has started since" in printed.err


def test_an_older_baseline_is_still_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime.now(UTC)
    job = Job(ranks=2, steps=60)
    for written_job, age in (
        (job, 1),
        (replace(job, run_id="base", facts={"synthetic": True}), 30),
    ):
        write_job(tmp_path / written_job.run_id, written_job)
        began_at(tmp_path / written_job.run_id, now - timedelta(days=age))
    monkeypatch.chdir(tmp_path)
    assert main(["report", "run-a", "base", "--since", "7d", "--format", "json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["baseline"]["id"] == "base"
