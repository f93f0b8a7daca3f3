"""Measured loaders: the run that they belong to, and reports about damaged files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.input_times import measured, write_measured
from support.step_logs import Job, run_of_job, write_job

from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run
from stallscope.errors import NotFoundError, UnknownVersionError, UnreadableError
from stallscope.parsers import read
from stallscope.parsers.formats.measurements import parse_input_times

JOB = Job(ranks=2, steps=20)


def test_measurements_of_all_ranks_come_with_their_run(tmp_path: Path) -> None:
    write_job(tmp_path, JOB)
    for rank in (0, 1):
        write_measured(tmp_path, rank=rank, size=2, run_id="run-a")
    (run,) = read(str(tmp_path))
    assert run.problems == ()
    assert [(times.rank, times.ms, times.batches) for times in run.input_times] == [
        (0, 8.0, 9),
        (1, 8.0, 9),
    ]
    assert [stage.kind for stage in run.input_times[0].stages] == ["read", "augment"]


def test_a_separate_measurement_belongs_to_the_run_in_its_folder(tmp_path: Path) -> None:
    """Measured afterwards, by a separate process, which knows neither run nor launch."""
    write_job(tmp_path / "one", JOB)
    write_job(tmp_path / "two", replace(JOB, run_id="run-b"))
    write_job(tmp_path / "two", replace(JOB, run_id="base", ranks=1))
    write_measured(tmp_path / "two", size=2, launch="another")
    counts = {run.id: len(run.input_times) for run in read(str(tmp_path))}
    assert counts == {"run-a": 0, "run-b": 1, "base": 0}


def test_a_launch_identifies_the_run(tmp_path: Path) -> None:
    write_job(tmp_path, replace(JOB, facts={"launch": "job 7"}))
    write_job(tmp_path, replace(JOB, run_id="run-b", facts={"launch": "job 8"}, generation=1))
    write_measured(tmp_path, size=2, launch="job 7")
    counts = {run.id: len(run.input_times) for run in read(str(tmp_path))}
    assert counts == {"run-a": 1, "run-b": 0}


def test_a_measurement_without_any_run_says_where_it_belongs(tmp_path: Path) -> None:
    write_measured(tmp_path)
    with pytest.raises(NotFoundError, match="a measurement of a loader, and no logs of a run; put"):
        read(str(tmp_path))


def test_a_measurement_on_other_ranks_is_left_alone_and_reported(tmp_path: Path) -> None:
    write_job(tmp_path, JOB)
    write_measured(tmp_path, size=8)
    (run,) = read(str(tmp_path))
    assert run.input_times == ()
    (problem,) = run.problems
    assert str(problem).startswith("rank-00000.0.input.json: measured on 8 ranks")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'"text"',
        json.dumps(measured() | {"batch_us": ["x"]}).encode(),
        json.dumps(measured() | {"ci95_ms": [1]}).encode(),
        json.dumps(measured() | {"stages": [{}]}).encode(),
        json.dumps(measured() | {"stages": 3}).encode(),
        json.dumps(measured() | {"began_wall_ns": None}).encode(),
        json.dumps(measured() | {"ms": "many"}).encode(),
        json.dumps(measured() | {"batch_us": [1e400]}).encode(),
        b"\xff\xfe",
    ],
)
def test_a_damaged_file_affects_no_other(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(UnreadableError, match="not a measurement of a loader, or incomplete"):
        parse_input_times("x.input.json", data)
    write_job(tmp_path, JOB)
    (tmp_path / "rank-00000.0.input.json").write_bytes(data)
    (run,) = read(str(tmp_path))
    assert run.steps.num_rows == 40
    assert "not a measurement of a loader" in str(run.problems[0])


def test_a_newer_measurement_is_refused_by_name() -> None:
    data = json.dumps(measured() | {"stallscope_input": 2}).encode()
    with pytest.raises(UnknownVersionError, match="pip install --upgrade"):
        parse_input_times("x.input.json", data)


def test_missing_measurements_are_none() -> None:
    nothing: dict[str, Any] = {
        "batch_us": [7000.0],
        "ms": None,
        "ci95_ms": None,
        "samples_per_batch": None,
        "stages": [],
        "no_stages": "why",
    }
    times = parse_input_times("x.input.json", json.dumps(measured() | nothing).encode())
    assert (times.ms, times.ci95_ms, times.samples_per_batch) == (None, None, None)
    assert (times.batches, times.first_batch_ms, times.no_stages) == (0, 7.0, "why")


@pytest.mark.parametrize("damage", [{"workers": 0}, {"ms": "fast"}, {"prefetch": None}])
def test_a_setting_that_cannot_be_is_damage(damage: dict[str, Any]) -> None:
    trial = {"workers": 4, "prefetch": 2, "ms": 20.0, "ci95_ms": None, **damage}
    with pytest.raises(UnreadableError, match="incomplete"):
        parse_input_times("x.input.json", json.dumps(measured(trials=[trial])).encode())


def test_collected_runs_keep_measurements(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", JOB)
    trials = [{"workers": 4, "prefetch": 2, "ms": 20.0, "ci95_ms": [19.0, 21.0]}]
    write_measured(tmp_path / "logs", size=2, run_id="run-a", trials=trials)
    (run,) = read(str(tmp_path / "logs"))
    assert len(run.input_times) == 1
    folder = save_run(run, tmp_path / "store")
    assert load_run(folder).input_times == run.input_times
    # Collected again, when the file has been replaced by another one.
    (tmp_path / "logs" / "rank-00000.0.input.json").unlink()
    write_measured(tmp_path / "logs", size=2, run_id="run-a", began_wall_ns=9)
    (again,) = read(str(tmp_path / "logs"))
    folder = save_run(again, tmp_path / "store")
    assert load_run(folder).input_times == (*again.input_times, *run.input_times)
    save_run(again, tmp_path / "store")
    assert len(load_run(folder).input_times) == 2


def test_a_store_of_an_older_version_has_none(tmp_path: Path) -> None:
    run = run_of_job(tmp_path / "logs", JOB)
    folder = save_run(run, tmp_path / "store")
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["input_times"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert load_run(folder).input_times == ()
