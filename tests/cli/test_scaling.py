"""``stallscope scaling`` as a user types it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.epoch_logs import EpochJob, write_ehealth, write_keras, write_log_callback
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


def test_unreadable_runs_are_reported_and_the_others_used(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scaling", "on-1", "nowhere", "on-2"]) == 2
    out, err = capsys.readouterr()
    assert "efficiency on 2 ranks" in out
    assert "nowhere" in err
    assert "Traceback" not in err


def test_runs_without_steps_are_an_error_of_one_sentence(
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


def test_a_folder_of_logs_with_epochs_is_a_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for ranks, epoch_s in ((1, 200.0), (8, 50.0)):
        write_ehealth(tmp_path, EpochJob(ranks, epoch_s))
    assert main(["scaling", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    # No log records whether the data is real.
    assert out.startswith("VGG16 on CALTECH101\n50.00% efficiency on 8 ranks")
    assert "what Keras printed (epochs, to the second)" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_a_log_without_its_ranks_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = EpochJob(8, 50.0)
    write_log_callback(tmp_path, job).rename(tmp_path / "driver.log")
    assert main(["scaling", str(tmp_path / "driver.log")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "driver.log: the log does not contain the number of ranks; name its" in err
    assert len(err.splitlines()) == 1
    (tmp_path / "driver.log").rename(tmp_path / "driver-np8.log")
    assert main(["scaling", str(tmp_path / "driver-np8.log")]) == 0


def test_one_log_without_ranks_does_not_keep_the_others_from_their_series(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [str(write_keras(tmp_path, EpochJob(ranks, 40.0))) for ranks in (1, 2)]
    unnamed = write_keras(tmp_path, EpochJob(4, 40.0)).rename(tmp_path / "stdout.txt")
    assert main(["scaling", *places, str(unnamed)]) == 2
    out, err = capsys.readouterr()
    assert "50.0% efficiency on 2 ranks" in out
    assert "stdout.txt: the log does not contain" in err


def test_repeats_that_differ_by_a_fault_are_averaged_and_reported(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = replace(JOB, ranks=4, run_id="slow", slow={(1, "compute"): 60.0})
    write_job(logs / "slow", replace(slow, facts={"run_name": "slow"}))
    assert main(["scaling", "on-1", "on-4", "slow"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "averaged though they differ by a fault: slow (slow rank 1)" in printed
