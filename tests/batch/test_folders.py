"""The jobs that logged into a folder, found from the first lines of their logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.batch.folders import runs_of
from stallscope.cli.main import main

JOB = Job(ranks=2, steps=40, facts={"launch": "job 7"})
HOUR_NS = 3_600 * 1_000_000_000


def on_own_disks(folder: Path, job: Job, names: tuple[str, str] = ("h1", "h2")) -> None:
    """Write a job's logs like two hosts without a shared folder: each has another run id."""
    for path, name in zip(write_job(folder / "all", job), names, strict=True):
        text = path.read_text().replace(f'"{job.run_id}"', f'"{job.run_id}-{name}"')
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"{job.run_id}.{path.name}").write_text(text)
        path.unlink()
    (folder / "all").rmdir()


def later(folder: Path, ns: int) -> None:
    """Move the logs in a folder to a later start."""
    for path in folder.iterdir():
        text = path.read_text()
        _, _, rest = text.partition('"wall_ns":')
        began = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        path.write_text(text.replace(f'"wall_ns":{began}', f'"wall_ns":{int(began) + ns}', 1))


def places(folder: Path) -> list[str]:
    return [unit.place for unit in runs_of(str(folder))]


def test_hosts_without_a_shared_folder_are_one_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_own_disks(tmp_path, JOB)
    assert places(tmp_path) == [str(tmp_path)]
    assert main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "steady steps of 2 ranks" in shown
    assert shown.count("╭") == 1


def test_jobs_of_hosts_without_a_shared_folder_are_told_apart(tmp_path: Path) -> None:
    on_own_disks(tmp_path, JOB)
    on_own_disks(tmp_path, replace(JOB, run_id="run-b", facts={"launch": "job 8"}))
    expected = {f"{tmp_path}#run-a-h1", f"{tmp_path}#run-b-h1"}
    assert set(places(tmp_path)) == expected


def test_a_job_that_resumed_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, logs = (tmp_path / name for name in ("first", "second", "logs"))
    write_job(first, replace(JOB, facts={}))
    write_job(second, replace(JOB, facts={}, run_id="run-b", first_step=40))
    later(second, HOUR_NS)
    logs.mkdir()
    for folder in (first, second):
        for path in folder.iterdir():
            path.rename(logs / f"{folder.name}-{path.name}")
    assert len(places(logs)) == 2
    assert main(["report", str(logs)]) == 0
    assert capsys.readouterr().out.count("╭") == 1
