"""Logs form one generation if their steps complete together, whatever their processes count."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from support.generations import AHEAD_S, GROWN_AND_SHRUNK, HOSTS, Generation, write_generations

from stallscope.analysis import analyse
from stallscope.collector.store.generations import generations_of, some_completions_of
from stallscope.collector.store.merge import completions_by_log, merge_runs
from stallscope.parsers import read
from stallscope.run import Run


def found_in(run: Run) -> list[tuple[int, int, str]]:
    """Generation, rank and host of every log."""
    return sorted((log.generation, log.rank, log.host) for log in run.logs)


TRUE = [
    (0, 0, "alpha"),
    (0, 1, "beta"),
    (1, 0, "alpha"),
    (1, 1, "beta"),
    (1, 2, "gamma"),
    (2, 0, "alpha"),
    (2, 1, "gamma"),
]


@pytest.mark.parametrize("ahead", [AHEAD_S, dict.fromkeys(HOSTS, 0.0)])
def test_processes_that_count_differently_are_put_together(
    tmp_path: Path, ahead: dict[str, float]
) -> None:
    write_generations(tmp_path, GROWN_AND_SHRUNK, ahead)
    (run,) = read(str(tmp_path))
    assert found_in(run) == TRUE
    assert run.problems == ()


def test_no_step_is_lost_where_two_processes_share_a_rank_and_a_count(tmp_path: Path) -> None:
    write_generations(tmp_path, GROWN_AND_SHRUNK)
    # Beta as rank 1 of the second generation and gamma as rank 1 of the third one count alike.
    assert (tmp_path / "rank-00001.1.1.steps.csv").exists()
    (run,) = read(str(tmp_path))
    generation, step = (run.steps[name].to_numpy() for name in ("generation", "step"))
    assert [np.unique(step[generation == number]).tolist() for number in range(3)] == [
        list(range(generation.first_step, generation.first_step + generation.steps))
        for generation in GROWN_AND_SHRUNK
    ]
    assert run.steps.num_rows == sum(
        len(generation.ranks) * generation.steps for generation in GROWN_AND_SHRUNK
    )


def test_a_host_that_is_collected_later_joins_its_generations(tmp_path: Path) -> None:
    write_generations(tmp_path / "all", GROWN_AND_SHRUNK)
    for name in ("first", "later"):
        (tmp_path / name).mkdir()
    for log in (tmp_path / "all").iterdir():
        folder = "later" if '"gamma"' in log.read_text().partition("\n")[0] else "first"
        log.rename(tmp_path / folder / log.name)
    (first,), (later,) = (read(str(tmp_path / name)) for name in ("first", "later"))
    whole = merge_runs(later, first, completions_by_log)
    assert found_in(whole) == TRUE
    assert whole.steps.num_rows == sum(
        len(generation.ranks) * generation.steps for generation in GROWN_AND_SHRUNK
    )
    # The logs are in the order of their generations, and so are their rows.
    assert [log.generation for log in whole.logs] == sorted(log.generation for log in whole.logs)
    generations = [whole.logs[log].generation for log in whole.steps["log"].to_pylist()]
    assert generations == whole.steps["generation"].to_pylist()


def test_some_completions_of_long_logs_tell_the_same(tmp_path: Path) -> None:
    short = GROWN_AND_SHRUNK
    long = (
        replace(short[0], steps=5_000),
        replace(short[1], begin_s=500.0, first_step=4_900, steps=1_500),
        replace(short[2], begin_s=800.0, first_step=6_399, steps=300),
    )
    write_generations(tmp_path, long)
    (run,) = read(str(tmp_path))
    of_log = [run.steps.filter(pc.equal(run.steps["log"], log)) for log in range(len(run.logs))]
    some = [some_completions_of(rows) for rows in of_log]
    assert max(len(steps) for steps, _ in some) < 1_100
    for (steps, _), rows in zip(some, of_log, strict=True):
        numbers = rows["step"].to_numpy()
        assert steps[[0, -1]].tolist() == numbers[[0, -1]].tolist()
    numbers = generations_of(run.logs, some.__getitem__)
    assert [(number, log.host) for number, log in zip(numbers, run.logs, strict=True)] == [
        (number, host) for number, _, host in TRUE
    ]


def test_a_replaced_host_makes_another_generation_though_no_process_counts_on(
    tmp_path: Path,
) -> None:
    generations = (
        Generation((("alpha", 0), ("beta", 0)), 0.0, 0, 60),
        Generation((("alpha", 0), ("gamma", 0)), 12.0, 60, 60),
    )
    write_generations(tmp_path, generations)
    (run,) = read(str(tmp_path))
    assert found_in(run) == [(0, 0, "alpha"), (0, 1, "beta"), (1, 0, "alpha"), (1, 1, "gamma")]


def test_two_fits_of_the_same_processes_are_one_generation(tmp_path: Path) -> None:
    generations = (
        Generation((("alpha", 0), ("beta", 0)), 0.0, 0, 60),
        Generation((("alpha", 0), ("beta", 0)), 12.0, 60, 60),
    )
    write_generations(tmp_path, generations)
    (run,) = read(str(tmp_path))
    assert {log.generation for log in run.logs} == {0}


def test_the_recorders_count_stays_where_it_agrees(tmp_path: Path) -> None:
    write_generations(tmp_path, (Generation((("alpha", 3), ("beta", 3)), 0.0, 200, 60),))
    (run,) = read(str(tmp_path))
    assert {log.generation for log in run.logs} == {3}


SET_BY_S = [-36_000.0, -700.0, -60.0, -5.0, 5.0, 700.0, 36_000.0]


@pytest.mark.parametrize("seconds", SET_BY_S)
@pytest.mark.parametrize("host", HOSTS)
def test_a_wrong_wall_clock_changes_no_generation(
    tmp_path: Path, host: str, seconds: float
) -> None:
    ahead = {**AHEAD_S, host: AHEAD_S[host] + seconds}
    write_generations(tmp_path, GROWN_AND_SHRUNK, ahead)
    (run,) = read(str(tmp_path))
    assert found_in(run) == TRUE


def set_wall_clock(folder: Path, host: str, since: int, seconds: float) -> None:
    """Set a host's wall clock before its process opened the log of a generation that it counts."""
    for path in folder.iterdir():
        header, _, rows = path.read_text().partition("\n")
        mark, version, text = header.split(" ", 2)
        facts = json.loads(text)
        if facts["host"] == host and facts["generation"] >= since:
            facts["anchor"]["wall_ns"] += round(seconds * 1e9)
            path.write_text(f"{mark} {version} {json.dumps(facts)}\n{rows}")


@pytest.mark.broad
@pytest.mark.parametrize("seconds", SET_BY_S)
@pytest.mark.parametrize(("host", "since"), [("alpha", 1), ("alpha", 2), ("beta", 1), ("gamma", 1)])
def test_a_wall_clock_that_is_set_changes_no_generation_and_no_duration(
    tmp_path: Path, host: str, since: int, seconds: float
) -> None:
    write_generations(tmp_path, GROWN_AND_SHRUNK)
    before = analyse(read(str(tmp_path))[0]).job
    set_wall_clock(tmp_path, host, since, seconds)
    (run,) = read(str(tmp_path))
    assert found_in(run) == TRUE
    assert analyse(run).job == before


def test_a_job_that_resumes_while_a_wall_clock_is_set_back_is_the_same_run(tmp_path: Path) -> None:
    jobs = (
        Generation((("alpha", 0), ("beta", 0)), 0.0, 0, 60),
        Generation((("alpha", 0), ("beta", 0)), 30.0, 60, 60),
    )
    write_generations(tmp_path, jobs)
    for path in tmp_path.glob("*.1.steps.csv"):
        path.write_text(path.read_text().replace('"run-a"', '"run-b"', 1))
    assert len(read(str(tmp_path))) == 1
    for path in tmp_path.glob("*.1.steps.csv"):
        header, _, rows = path.read_text().partition("\n")
        facts = json.loads(header.split(" ", 2)[2])
        facts["anchor"]["wall_ns"] -= 3_600 * 10**9
        path.write_text(f"#stallscope 1 {json.dumps(facts)}\n{rows}")
    assert len(read(str(tmp_path))) == 1
