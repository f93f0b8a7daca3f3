"""``stallscope scaling`` as a user types it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.cli.main import main

JOB = Job(ranks=1, steps=120, allreduce_ms=2.0)


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for ranks in (1, 2, 4):
        write_job(tmp_path / f"on-{ranks}", replace(JOB, ranks=ranks, run_id=f"on-{ranks}"))
    return tmp_path


def test_a_summary_is_printed(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scaling", "on-4", "on-1", "on-2"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "efficiency on 4 ranks" in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_goes_to_standard_output_alone(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scaling", "on-1", "on-2", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    (series,) = json.loads(out)["series"]
    assert [point["ranks"] for point in series["points"]] == [1, 2]


def test_files_are_written_once_and_not_overwritten(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["scaling", "on-1", "on-2", "--format", "html,md,json,csv", "--out", "out"]
    assert main(words) == 0
    written = capsys.readouterr().out.split()
    assert written == [f"out/scaling.{end}" for end in ("html", "md", "json", "csv")]
    assert all((logs / path).stat().st_size > 200 for path in written)
    assert main(words) == 2
    assert "add --force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


def test_what_cannot_be_read_is_said_and_the_rest_is_done(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scaling", "on-1", "nowhere", "on-2"]) == 2
    out, err = capsys.readouterr()
    assert "efficiency on 2 ranks" in out
    assert "nowhere" in err
    assert "Traceback" not in err


def test_runs_without_steps_are_one_sentence(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(logs / "none", replace(JOB, steps=0, run_id="none"))
    assert main(["scaling", "none"]) == 2
    assert capsys.readouterr().err == (
        "stallscope: none: neither steps nor epochs that could be timed\n"
    )


def test_out_without_format_is_refused(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scaling", "on-1", "--out", "out"]) == 2
    assert "--out needs --format" in capsys.readouterr().err
