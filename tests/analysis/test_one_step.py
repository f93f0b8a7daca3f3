"""One step in detail: which rank was last, why, and the cost."""

from __future__ import annotations

import numpy as np
import pytest
from simulator import Between, Fault, Job, Noise, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.views.one_step import find_step, late_steps, neighbours

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
    assert step.usually == pytest.approx(4, rel=0.1)


def test_its_parts_add_up_for_every_rank(analysis: Analysis) -> None:
    step = find_step(analysis, 150)
    assert step is not None
    for rank in step.ranks:
        own = rank.other + rank.input + rank.compute
        assert own == pytest.approx(rank.arrival)
        assert own + rank.wait + step.allreduce == pytest.approx(step.total)
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
    assert ledger.steps[late_steps(analysis)].tolist() == [150]
    slow = find_step(analysis, 200)
    assert slow is not None
    assert (slow.last, slow.late) == (3, False)


def test_the_way_to_other_steps(analysis: Analysis) -> None:
    step = find_step(analysis, 150)
    assert step is not None
    near = neighbours(analysis, step.at)
    assert (near.previous, near.next) == (149, 151)
    assert (near.previous_late, near.next_late) == (None, None)
    assert neighbours(analysis, 0).previous is None
    assert neighbours(analysis, 0).next_late == 150
    assert neighbours(analysis, 299).next is None
    assert neighbours(analysis, 299).previous_late == 150


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
