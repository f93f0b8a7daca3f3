"""Concatenated step logs in one file are separate logs."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from support.step_logs import Job, run_of_job, write_job

from stallscope.parsers import read
from stallscope.parsers.inspection.inspect_files import inspect
from stallscope.run import Run


@pytest.fixture
def logs(tmp_path: Path) -> list[bytes]:
    write_job(tmp_path / "apart", Job(ranks=3, steps=200))
    return [path.read_bytes() for path in sorted((tmp_path / "apart").glob("*.csv"))]


def of_ranks(run: Run) -> dict[int, list[tuple[int, int]]]:
    """Return each rank's steps with their starts."""
    starts: dict[int, list[tuple[int, int]]] = {}
    columns = (run.steps[name].to_pylist() for name in ("rank", "step", "begin"))
    for rank, step, begin in zip(*columns, strict=True):
        starts.setdefault(rank, []).append((step, begin))
    return starts


@pytest.mark.parametrize("packed", [False, True])
def test_every_rank_keeps_its_own_steps(tmp_path: Path, logs: list[bytes], packed: bool) -> None:
    (apart,) = read(str(tmp_path / "apart"))
    whole = b"".join(logs)
    (tmp_path / "all.steps.csv").write_bytes(gzip.compress(whole) if packed else whole)
    (joined,) = read(str(tmp_path / "all.steps.csv"))
    assert of_ranks(joined) == of_ranks(apart)
    assert joined.ranks == apart.ranks
    assert joined.problems == ()
    (seen,) = inspect(str(tmp_path / "all.steps.csv")).files
    assert (seen.ranks, seen.steps) == ((0, 1, 2), 200)


def test_a_torn_log_before_another_loses_its_last_line(tmp_path: Path, logs: list[bytes]) -> None:
    (tmp_path / "all").write_bytes(logs[0][:-5] + logs[1] + b"#stallscope 1 {torn\n" + logs[2])
    (run,) = read(str(tmp_path / "all"))
    assert {rank: len(steps) for rank, steps in of_ranks(run).items()} == dict.fromkeys(
        range(3), 200
    )
    assert [log.ended for log in run.logs] == [False, True, True]
    messages = [problem.what for problem in run.problems]
    assert messages == ["1 torn or unreadable line skipped"] * 2


def test_an_unreadable_one_does_not_affect_the_others(tmp_path: Path, logs: list[bytes]) -> None:
    newer = logs[1].replace(b"#stallscope 1 ", b"#stallscope 9 ", 1)
    (tmp_path / "all").write_bytes(newer + logs[0] + newer)
    (run,) = read(str(tmp_path / "all"))
    assert list(of_ranks(run)) == [0]
    assert [p.what[:42] for p in run.problems] == ["step log format 9 is newer than this Stall"] * 2


def test_a_name_with_a_headers_words_is_not_a_header(tmp_path: Path) -> None:
    name = 'a #stallscope 1 {"b'
    run = run_of_job(tmp_path, Job(ranks=1, steps=20, facts={"run_name": name}))
    assert run.name == name
    assert run.steps.num_rows == 20


def test_a_truncated_compressed_log_is_reported(tmp_path: Path, logs: list[bytes]) -> None:
    whole = gzip.compress(logs[0])
    (tmp_path / "torn.gz").write_bytes(whole[: len(whole) // 2])
    messages = "the compressed file is truncated or damaged; the rest is missing"
    (run,) = read(str(tmp_path / "torn.gz"))
    assert 0 < run.steps.num_rows < 200
    assert messages in [problem.what for problem in run.problems]
    (seen,) = inspect(str(tmp_path / "torn.gz")).files
    assert messages in seen.notes
    assert seen.steps == run.steps.num_rows
