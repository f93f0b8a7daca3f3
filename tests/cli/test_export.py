"""``stallscope export`` as a user types it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from support.step_logs import Job, write_job

from stallscope.cli.main import main

JOB = Job(ranks=2, steps=60, run_id="job")


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path / "job", JOB)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        pytest.param("perfetto", b"\n", marks=pytest.mark.extras),
        ("chrome", b'{"displayTimeUnit":"ms"'),
        ("parquet", b"PAR1"),
        ("csv", b"run_id,generation,step"),
        ("events-csv", b"run_id,at_ns,uncertainty_ns"),
    ],
)
def test_a_file_is_written_once_and_not_overwritten(
    name: str, begins: bytes, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "job", "--format", name, "--out", f"out/file.{name}"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (f"out/file.{name}\n", "")
    assert (logs / "out" / f"file.{name}").read_bytes().startswith(begins)
    assert main(words) == 2
    assert "add --force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


def test_steps_and_ranks_are_chosen(logs: Path) -> None:
    words = ["export", "job", "--format", "parquet", "--out", "part.parquet"]
    assert main([*words, "--from", "10", "--to", "19", "--ranks", "1"]) == 0
    table = pq.read_table(logs / "part.parquet")
    assert table["step"].to_pylist() == list(range(10, 20))
    assert set(table["rank"].to_pylist()) == {1}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["job", "--format", "svg"], "no export format 'svg': there are perfetto, chrome,"),
        (["job", "--format", "csv", "--from", "x"], "--from x: give the number of a step"),
        (["job", "--format", "csv", "--to", "-1"], "--to -1: give the number of a step"),
        (["job", "--format", "csv", "--from", "9", "--to", "8"], "the last step comes before"),
        (["job", "--format", "csv", "--from", "60"], "the run has steps 0 to 59"),
        (["job", "--format", "csv", "--ranks", "1,x"], "--ranks 1,x: give ranks and ranges"),
        (["job", "--format", "csv", "--ranks", "2"], "no steps of rank 2: the run has"),
        (["nowhere", "--format", "csv"], "nowhere"),
        (["job", "--format", "mlflow"], "--out out: give mlflow:RUN_ID with 32 hex digits"),
    ],
)
def test_mistakes_are_errors_of_one_sentence(
    words: list[str], expected: str, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", *words, "--out", "out"]) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert len(err.splitlines()) == 1
    assert not (logs / "out").exists()


def test_a_run_without_steps_is_an_error_of_one_sentence(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(logs / "none", replace(JOB, steps=0, run_id="none"))
    assert main(["export", "none", "--format", "csv", "--out", "out"]) == 2
    assert "no step was recorded in these logs" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["perfetto", "wandb"])
def test_a_missing_extra_is_an_error_of_one_sentence(
    name: str, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (name, "perfetto.protos.perfetto.trace"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["export", "job", "--format", name, "--out", "out"]) == 2
    err = capsys.readouterr().err
    assert f"pip install 'stallscope[{name}]'" in err
    assert len(err.splitlines()) == 1
    assert not (logs / "out").exists()


def test_tensorboard_gets_a_folder(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "job", "--format", "tensorboard", "--out", "board/job"]
    assert main(words) == 0
    (path,) = (logs / "board" / "job").iterdir()
    assert capsys.readouterr().out == f"{path.relative_to(logs)}\n"
    assert b"brain.Event:2" in path.read_bytes()[:40]
    assert main(words) == 2
    assert "add --force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


def test_a_file_is_no_folder_for_offline_runs(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "file").touch()
    assert main(["export", "job", "--format", "wandb", "--out", "file"]) == 2
    assert "this is a file; name a folder with --out" in capsys.readouterr().err


def test_a_library_that_refuses_is_an_error_of_one_sentence(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # An old version: its settings have other names.
    def settings(**_: object) -> None:
        raise ValueError("x_disable_stats\n  Extra inputs are not permitted")

    old = SimpleNamespace(__version__="0.16.0", init=dict, Settings=settings)
    monkeypatch.setitem(sys.modules, "wandb", old)
    assert main(["export", "job", "--format", "wandb", "--out", "out"]) == 2
    err = capsys.readouterr().err
    assert err == (
        "stallscope: wandb 0.16.0 did not write the run (x_disable_stats); nothing was exported. "
        "Stallscope needs wandb 0.31 or later\n"
    )
    assert list((logs / "out").iterdir()) == []
