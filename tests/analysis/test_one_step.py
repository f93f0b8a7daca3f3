"""One step in detail: which rank was last, why, and the cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from simulator import Between, Fault, Job, Noise, simulate
from support.generations import GROWN_AND_SHRUNK, write_generations

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.views.one_step import find_step, late_steps, neighbours
from stallscope.parsers import read

LATE = Fault("input", 80, ranks=(2,), when=Between(150, 150), cv=0)
SLOW = Fault("compute", 30, ranks=(3,), when=Between(100, 299), cv=0)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    job = Job(
        ranks=4, steps=300, epochs=3, noise=Noise(cv=0.01), faults=(LATE, SLOW), validation_ms=500
    )
    return analyse(simulate(job).run)


def test_the_last_rank_and_the_stage_that_explains_most(analysis: Analysis) -> None:
    step = find_step(analysis, 150)
    assert step is not None
    assert (step.last, step.cause, step.late) == (2, "input", True)
    ranks = {rank.rank: rank for rank in step.ranks}
    last, reference = ranks[step.last], ranks[step.reference]
    assert last.arrival - reference.arrival == pytest.approx(80, rel=0.1)
    assert last.input - reference.input == pytest.approx(80, rel=0.1)


def test_its_parts_add_up_for_every_rank(analysis: Analysis) -> None:
    step = find_step(analysis, 150)
    assert step is not None
    for rank in step.ranks:
        stages = rank.other + rank.input + rank.compute
        assert stages == pytest.approx(rank.arrival)
        assert stages + rank.wait + step.allreduce == pytest.approx(step.total)
    arrivals = [rank.arrival for rank in step.ranks]
    assert arrivals == sorted(arrivals, reverse=True)
    assert step.ranks[0].rank == step.last
    waits = [rank.wait for rank in step.ranks]
    assert step.waited_rank_s == pytest.approx(sum(waits) / 1e3)


def test_the_gap_before_it_is_named(analysis: Analysis) -> None:
    first = find_step(analysis, 100)
    assert first is not None
    assert [kind for kind, _ in first.gaps][:1] == ["validation"]
    within = find_step(analysis, 150)
    assert within is not None
    assert within.gaps == ()


def test_a_permanently_slow_rank_makes_no_step_late(analysis: Analysis) -> None:
    ledger = analysis.ledger
    assert ledger is not None
    assert ledger.steps[late_steps(analysis.generation_ledgers)].tolist() == [150]
    slow = find_step(analysis, 200)
    assert slow is not None
    assert (slow.last, slow.late) == (3, False)


def test_the_way_to_other_steps(analysis: Analysis) -> None:
    step = find_step(analysis, 150)
    assert step is not None
    near = neighbours(analysis, step.at)
    assert (near.previous, near.next) == ((149, 0), (151, 0))
    assert (near.previous_late, near.next_late) == (None, None)
    assert neighbours(analysis, 0).previous is None
    assert neighbours(analysis, 0).next_late == (150, 0)
    assert neighbours(analysis, 299).next is None
    assert neighbours(analysis, 299).previous_late == (150, 0)


def test_a_missing_step(analysis: Analysis) -> None:
    assert find_step(analysis, 300) is None
    assert find_step(analyse(simulate(Job(ranks=2, steps=30, stamps=False)).run), 3) is None


def test_the_warm_up_is_never_late(analysis: Analysis) -> None:
    first = find_step(analysis, 0)
    assert first is not None
    assert (first.warm_up, first.late) == (True, False)


def test_a_rank_without_timestamps_is_reported_and_not_counted() -> None:
    analysis = analyse(simulate(Job(ranks=16, steps=120, cut_ranks={5: 60})).run)
    step = find_step(analysis, 80)
    assert step is not None
    assert step.unmeasured == (5,)
    assert sorted(rank.rank for rank in step.ranks) == [r for r in range(16) if r != 5]
    assert np.isfinite(step.waited_rank_s)


def test_a_step_of_several_generations_is_one_of_each(tmp_path: Path) -> None:
    write_generations(tmp_path, GROWN_AND_SHRUNK)
    (run,) = read(str(tmp_path))
    analysis = analyse(run)
    last, first = find_step(analysis, 55), find_step(analysis, 55, 0)
    assert last is not None
    assert first is not None
    assert (last.generation, first.generation) == (1, 0)
    assert first.generations == last.generations == (0, 1)
    assert sorted((rank.rank, rank.host) for rank in last.ranks) == [
        (0, "alpha"),
        (1, "beta"),
        (2, "gamma"),
    ]
    assert sorted((rank.rank, rank.host) for rank in first.ranks) == [(0, "alpha"), (1, "beta")]
    assert find_step(analysis, 55, 2) is None
    assert find_step(analysis, 20, 1) is None
    end = find_step(analysis, 59, 0)
    assert end is not None
    near = neighbours(analysis, end.at)
    assert (near.previous, near.next) == ((58, 0), (50, 1))
    assert neighbours(analysis, 209).next is None
