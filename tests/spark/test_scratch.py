"""Temporary files of executors are next to the runs, under the user's path, and are removed in time."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pytest
from support.step_logs import Job, run_of_job, write_job

from stallscope.batch.units import Unit
from stallscope.cli.main import main
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import Source, SourceFile
from stallscope.collector.store.run_folders import save_run
from stallscope.errors import UnwritableError, UsageError
from stallscope.parsers import read
from stallscope.run import Run
from stallscope.spark import reporting
from stallscope.spark.remote_steps import SparkTable
from stallscope.spark.reporting import RemoteRuns, _accessible, remote_runs, scratch_in
from stallscope.spark.spark_collecting import SparkEngine


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collected")
    run = run_of_job(folder / "logs", Job(ranks=2, steps=20))
    return save_run(run, folder / "store")


@pytest.fixture(autouse=True)
def nothing_comes_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "MOST_ROWS_ON_DRIVER", 0)


def opened(runs: RemoteRuns, folder: Path) -> Run:
    return runs.read(Unit(str(folder), collected=True), None)


def left(store: Path) -> list[Path]:
    return list(store.glob(".stallscope-spark-*"))


def test_scratch_is_removed_with_its_run(collected: Path) -> None:
    with remote_runs(None) as runs:
        first, second = opened(runs, collected), opened(runs, collected)
        assert len(left(collected.parent)) == 2
        (left(collected.parent)[0] / "some.cells").touch()
        del first
        assert len(left(collected.parent)) == 1
    assert second.id
    assert not left(collected.parent)


def test_scratch_in_use_for_days_stays(collected: Path) -> None:
    with remote_runs(None) as runs:
        held = opened(runs, collected)
        (folder,) = left(collected.parent)
        os.utime(folder, (time.time() - 2 * 86_400,) * 2)
        assert opened(runs, collected).id == held.id
        assert left(collected.parent) == [folder]


def test_executors_get_the_path_that_the_user_named(collected: Path, tmp_path: Path) -> None:
    link = tmp_path / "mounted"
    link.symlink_to(collected.parent)
    with remote_runs(None) as runs:
        steps = opened(runs, link / collected.name).steps
        assert isinstance(steps, SparkTable)
        assert {Path(steps.cluster.folder).parent} == {link}
        assert all(Path(file).is_relative_to(link) for file in steps.files)


def test_leftovers_of_dead_drivers_are_removed_after_a_day(tmp_path: Path) -> None:
    old, young = scratch_in(tmp_path), scratch_in(tmp_path)
    (old / "some.cells").touch()
    # A folder of Spark itself, and one of a user.
    others = [tmp_path / ".spark-staging-1", tmp_path / ".spark-defaults"]
    for folder in (old, *others):
        folder.mkdir(exist_ok=True)
        os.utime(folder, (time.time() - 2 * 86_400,) * 2)
    new = scratch_in(tmp_path)
    assert sorted(left(tmp_path)) == sorted([young, new])
    assert all(folder.is_dir() for folder in others)


def test_logs_without_a_folder_here_need_a_place_for_executors() -> None:
    with remote_runs(None) as runs, pytest.raises(
        UsageError, match=r"^s3://bucket/logs: .+ --scratch$"
    ):
        runs.read(Unit("s3://bucket/logs"), None)


def test_the_error_of_an_unwritable_folder_names_the_option() -> None:
    # Not even root can create files there.
    message = "name another place with --scratch"
    with remote_runs(None) as runs, pytest.raises(UnwritableError, match=message):
        runs.read(Unit("/proc/self/task"), None)


def test_executors_write_to_the_named_scratch(collected: Path, tmp_path: Path) -> None:
    with remote_runs(None, str(tmp_path / "there")) as runs:
        run = opened(runs, collected)
        assert len(left(tmp_path / "there")) == 1
        assert not left(collected.parent)
        assert run.id
    assert not left(tmp_path / "there")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--scratch", "/tmp"], "--scratch /tmp: only --engine spark uses it; add that option"),
        (
            ["--engine", "spark", "--scratch", "dbfs:/tmp"],
            "dbfs:/tmp: executors cannot write there",
        ),
        (["--engine", "spark", "--scratch", "nosuch://x"], "nosuch://x: cannot be opened"),
    ],
)
def test_an_invalid_scratch_is_an_error_before_spark_starts(
    words: list[str], says: str, collected: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(collected), *words]) == 2
    assert says in capsys.readouterr().err


def test_scratch_of_other_drivers_is_not_read_as_logs(tmp_path: Path) -> None:
    write_job(tmp_path, Job(ranks=2, steps=20))
    (scratch_in(tmp_path) / "some.parquet").write_bytes(b"PAR1")
    (run,) = read(str(tmp_path))
    assert run.problems == ()


class Elsewhere(Source):
    """A place that only the driver can read, such as MLflow's runs."""

    where = "elsewhere:run-a"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def files(self) -> list[SourceFile]:
        return open_source(str(self._folder)).files()


def test_logs_that_executors_cannot_read_are_fetched_for_them(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", Job(ranks=2, steps=20))
    place = Elsewhere(tmp_path / "logs")
    copies = SparkEngine(None).prepare(place, tmp_path / "store", lambda _new, _total: None)
    for near in (copies, _accessible(place, str(tmp_path / "scratch"))):
        assert near.local
        # Executors need no source packages, only paths that all machines have.
        assert [file.read() for file in pickle.loads(pickle.dumps(near.files()))] == [
            path.read_bytes() for path in sorted((tmp_path / "logs").iterdir())
        ]
    with pytest.raises(UsageError, match=r"^elsewhere:run-a: executors cannot read there"):
        _accessible(place, "s3://bucket/tmp/.stallscope-spark-abcdefgh")
