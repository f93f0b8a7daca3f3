"""Follow a run that is being recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, write_job

from stallscope.errors import NotFoundError
from stallscope.parsers import read
from stallscope.parsers.growing import Follower

JOB = Job(ranks=2, steps=120, epochs=2, validation_ms=50, run_id="growing")


class Growing:
    """Logs of a finished job, revealed bit by bit."""

    def __init__(self, whole: Path, folder: Path) -> None:
        write_job(whole, JOB)
        folder.mkdir()
        self.folder = folder
        self.files = {path.name: path.read_bytes() for path in whole.glob("*.steps.csv")}

    def grow(self, share: float) -> None:
        for name, data in self.files.items():
            with (self.folder / name).open("wb") as file:
                file.write(data[: int(len(data) * share)])


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path / "whole", tmp_path / "folder")


def test_at_the_end_it_has_read_what_the_parser_reads(growing: Growing) -> None:
    follower = Follower(growing.folder, "growing")
    for share in (0.1, 0.101, 0.3, 0.35, 0.8, 0.999, 1.0):
        growing.grow(share)
        follower.look()
    assert not follower.look()
    followed, (run,) = follower.run(), read(str(growing.folder))
    assert followed.steps.sort_by([("rank", "ascending"), ("step", "ascending")]).equals(
        run.steps.sort_by([("rank", "ascending"), ("step", "ascending")])
    )
    assert followed.intervals.num_rows == run.intervals.num_rows
    assert [log.facts for log in followed.logs] == [log.facts for log in run.logs]
    assert [log.size for log in followed.logs] == [log.size for log in run.logs]
    assert (followed.status, followed.size) == ("completed", 2)


def test_only_new_bytes_are_read(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower(growing.folder, "growing")
    growing.grow(0.9)
    assert follower.look()
    growing.grow(1.0)
    # Bytes that were read are not read again: they may be anything by now.
    for path in growing.folder.iterdir():
        data = path.read_bytes()
        path.write_bytes(b"x" * 1000 + data[1000:])
    assert follower.look()
    assert follower.run().steps.num_rows == 240


def test_a_partial_line_waits_for_its_rest(growing: Growing) -> None:
    follower = Follower(growing.folder, "growing")
    growing.grow(0.5)
    follower.look()
    run = follower.run()
    assert run.problems == ()
    assert sum(log.torn for log in run.logs) == 0
    assert run.status == "open"


def test_a_partial_first_line_is_read_again(growing: Growing) -> None:
    follower = Follower(growing.folder, "growing")
    growing.grow(0.001)
    assert not follower.look()
    with pytest.raises(NotFoundError, match="no log of run growing is here yet"):
        follower.run()
    growing.grow(1.0)
    assert follower.look()


def test_only_the_last_steps_are_kept(growing: Growing) -> None:
    follower = Follower(growing.folder, "growing", most_rows=130)
    for share in (0.2, 0.6, 1.0):
        growing.grow(share)
        follower.look()
    steps = follower.run().steps
    assert steps.num_rows == 130
    assert set(steps["step"].to_pylist()) == set(range(55, 120))


def test_a_long_log_is_read_from_near_its_end(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", replace(JOB, steps=20_000, ranks=1))
    follower = Follower(tmp_path / "logs", "growing", most_rows=100)
    assert follower.look()
    run, (whole,) = follower.run(), read(str(tmp_path / "logs"))
    assert run.steps["step"].to_pylist() == list(range(19_900, 20_000))
    assert run.logs[0].facts == whole.logs[0].facts
    assert run.logs[0].size == whole.logs[0].size
    assert run.status == "completed"


def test_of_a_long_run_two_thousand_steps_are_kept(tmp_path: Path) -> None:
    write_job(tmp_path / "logs", replace(JOB, steps=5_000, ranks=2))
    follower = Follower(tmp_path / "logs", "growing")
    follower.look()
    assert set(follower.run().steps["step"].to_pylist()) == set(range(3_000, 5_000))


def test_other_runs_in_the_folder_are_left_alone(growing: Growing, tmp_path: Path) -> None:
    growing.grow(1.0)
    write_job(tmp_path / "other", replace(JOB, run_id="other"))
    for path in (tmp_path / "other").glob("*.steps.csv"):
        path.rename(growing.folder / path.name.replace(".0.0.", ".7.0."))
    follower = Follower(growing.folder, "growing")
    assert follower.look()
    assert follower.run().id == "growing"
    assert len(follower.run().logs) == 2


def test_joined_logs_are_not_one_ranks(growing: Growing) -> None:
    growing.grow(1.0)
    joined = b"".join(growing.files.values())
    (growing.folder / "all.steps.csv").write_bytes(joined)
    follower = Follower(growing.folder, "growing")
    assert follower.look()
    assert (
        follower.run().steps.num_rows
        == read(str(growing.folder / "all.steps.csv"))[0].steps.num_rows
    )


def test_a_later_rank_is_read_too(growing: Growing) -> None:
    growing.grow(1.0)
    late = growing.folder / "rank-00001.0.0.steps.csv"
    data = late.read_bytes()
    late.unlink()
    follower = Follower(growing.folder, "growing")
    follower.look()
    assert follower.run().ranks == [0]
    late.write_bytes(data)
    assert follower.look()
    assert follower.run().ranks == [0, 1]


def test_a_deleted_folder_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="the folder has gone"):
        Follower(tmp_path / "nowhere", "run").look()


def test_other_files_may_be_in_the_folder(growing: Growing) -> None:
    growing.grow(1.0)
    (growing.folder / "rank-00009.0.0.steps.csv").write_bytes(b"\x00\xff no log\n" * 10)
    (growing.folder / "rank-00008.0.0.steps.csv").mkdir()
    follower = Follower(growing.folder, "growing")
    assert follower.look()
    assert follower.run().ranks == [0, 1]
