"""Ranks are found in names of files and folders, and not in other numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.parsers import read
from stallscope.parsers.rank_names import rank_in, ranks_in


@pytest.mark.parametrize(
    ("path", "rank", "place"),
    [
        ("1/rank.07/stdout", 7, "1//stdout"),
        ("logs/rank_3.log", 3, "logs/.log"),
        ("rank3", 3, ""),
        ("logs/log_rank3.txt", 3, "logs/log_.txt"),
        ("train-rank-12.out.gz", 12, "train-.out.gz"),
        ("rank.1/rank_1.log", 1, "/.log"),
        ("RANK_2.LOG", 2, ".LOG"),
        ("worker-3.log", 3, ".log"),
        ("job-worker-0.log", 0, "job-.log"),
        ("worker_5/stdout", 5, "/stdout"),
        ("process-4.err", 4, ".err"),
        ("node-2/rank-17.out", 17, "node-2/.out"),
        ("run/attempt_0/3/stdout.log", 3, "run/attempt_0//stdout.log"),
        ("out.prterun-host-17@1.3.out", 3, "out.prterun-host-17@1..out"),
    ],
)
def test_names_that_tell_the_rank(path: str, rank: int, place: str) -> None:
    assert rank_in(path) == (rank, place)


@pytest.mark.parametrize(
    "path",
    [
        "checkpoint-3.log",
        "run-2/train.log",
        "model.v1.2.log",
        "2026-11-21/train.log",
        "rank-2026-11-21.log",
        "ranks-8/train.log",
        "8-ranks.log",
        "lora_rank_16/train.log",
        "low-rank-4.log",
        "prank-3.log",
        "pagerank3.log",
        "dataloader-worker-3.log",
        "workers-8.log",
        "worker-1.2.3/train.log",
        "slurm-123.out",
        "slurm-123_4.out",
        "slurm-123-3.out",
        "stdout.3",
        "attempt_0/3/other.log",
        "node-2/train.log",
    ],
)
def test_names_that_tell_none(path: str) -> None:
    assert rank_in(path) == (None, path)
    assert ranks_in([path])[path] == (None, path)


@pytest.mark.parametrize(
    "name", ["slurm-123-{}.out", "stdout.{}", "logs/stdout.{}.gz", "output.{}", "stderr.00{}"]
)
def test_numbers_are_ranks_where_all_from_0_on_are_there(name: str) -> None:
    paths = [name.format(rank) for rank in range(3)]
    ranks = ranks_in([*paths, "train.log"])
    assert [ranks[path].rank for path in paths] == [0, 1, 2]
    assert len({ranks[path].place for path in paths}) == 1
    # Files that were rotated begin with another number, and one file of one job is alone.
    assert {file.rank for file in ranks_in(paths[1:]).values()} == {None}
    assert {file.rank for file in ranks_in([paths[0], paths[2]]).values()} == {None}
    assert {file.rank for file in ranks_in(paths[:1]).values()} == {None}


def test_jobs_of_slurm_have_ranks_of_their_own() -> None:
    names = [f"slurm-{job}-{rank}.out" for job in (7, 8) for rank in (0, 1)]
    ranks = ranks_in(names)
    assert [ranks[name].rank for name in names] == [0, 1, 0, 1]
    # Jobs may be told apart by their numbers.
    assert len({ranks[name].place for name in names}) == 2


def test_hosts_have_ranks_of_one_job_unless_they_have_the_same_ones() -> None:
    names = [f"node-{rank // 8}/rank-{rank}.out" for rank in range(16)]
    assert len({file.place for file in ranks_in(names).values()}) == 1
    again = [f"node{host}/rank-{rank}.out" for host in (0, 1) for rank in (0, 1)]
    assert len({file.place for file in ranks_in(again).values()}) == 2


KERAS = (
    "Epoch 1/2\n5/5 - {0}s - loss: 1.0 - 700ms/step\n"
    "Epoch 2/2\n5/5 - {0}s - loss: 1.0 - 700ms/step\n"
)


@pytest.mark.parametrize(
    "name",
    [
        "1/rank.0{}/stdout",
        "logs/rank_{}.log",
        "worker-{}.log",
        "node-{0}/rank-{0}.out",
        "stdout.{}",
        "log_rank{}.txt",
        "slurm-123-{}.out",
        "attempt_0/{}/stdout.log",
    ],
)
def test_files_of_ranks_are_one_run(name: str, tmp_path: Path) -> None:
    for rank in range(3):
        path = tmp_path / name.format(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(KERAS.format(3 + rank))
    (run,) = read(str(tmp_path))
    assert run.ranks == [0, 1, 2]
    took = {
        row["rank"]: (row["end"] - row["begin"]) / 1e9
        for row in run.intervals.to_pylist()
        if row["kind"] == "epoch"
    }
    assert took == {0: 3.0, 1: 4.0, 2: 5.0}


@pytest.mark.parametrize("name", ["run-{}/train.log", "checkpoint-{}.log", "stdout.{}.log"])
def test_files_of_other_numbers_are_several_runs(name: str, tmp_path: Path) -> None:
    for number in range(2):
        path = tmp_path / name.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(KERAS.format(3))
    assert [run.ranks for run in read(str(tmp_path))] == [[0], [0]]
