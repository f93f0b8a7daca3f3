"""What executors write to is beside the runs, under the store's own path, and goes in time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.batch.units import Unit
from stallscope.collector.store import save_run
from stallscope.parsers import read
from stallscope.run import Run
from stallscope.spark.reporting import FarRuns, far_runs
from stallscope.spark.scratch import scratch_in
from stallscope.spark.table import FarTable


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collected")
    write_job(folder / "logs", Job(ranks=2, steps=20))
    (run,) = read(str(folder / "logs"))
    return save_run(run, folder / "store")


def opened(runs: FarRuns, folder: Path) -> Run:
    return runs.read(Unit(str(folder), collected=True), None)


def left(store: Path) -> list[Path]:
    return list(store.glob(".spark-*"))


def test_a_runs_scratch_goes_with_the_run(collected: Path) -> None:
    with far_runs(None) as runs:
        one, other = opened(runs, collected), opened(runs, collected)
        assert len(left(collected.parent)) == 2
        (left(collected.parent)[0] / "some.cells").touch()
        del one
        assert len(left(collected.parent)) == 1
    assert other.id
    assert not left(collected.parent)


def test_what_is_held_for_days_stays(collected: Path) -> None:
    with far_runs(None) as runs:
        held = opened(runs, collected)
        (folder,) = left(collected.parent)
        os.utime(folder, (time.time() - 2 * 86_400,) * 2)
        assert opened(runs, collected).id == held.id
        assert left(collected.parent) == [folder]


def test_executors_are_told_the_path_that_the_user_named(collected: Path, tmp_path: Path) -> None:
    link = tmp_path / "mounted"
    link.symlink_to(collected.parent)
    with far_runs(None) as runs:
        steps = opened(runs, link / collected.name).steps
        assert isinstance(steps, FarTable)
        assert {Path(steps.cluster.folder).parent} == {link}
        assert all(Path(file).is_relative_to(link) for file in steps.files)


def test_what_dead_drivers_have_left_goes_after_a_day(tmp_path: Path) -> None:
    old, young = scratch_in(tmp_path), scratch_in(tmp_path)
    (old / "some.cells").touch()
    # Of Spark itself.
    (staging := tmp_path / ".spark-staging-1").mkdir()
    for folder in (old, staging):
        os.utime(folder, (time.time() - 2 * 86_400,) * 2)
    new = scratch_in(tmp_path)
    assert sorted(left(tmp_path)) == sorted([young, staging, new])
