"""Ranks next to each other, the most interesting ones first."""

from __future__ import annotations

from functools import cache

import pytest
from simulator import Fault, Job, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.charts.charts import MOST_RANKS, ranks_chart


@cache
def slow(ranks: int, rank: int) -> Analysis:
    faults = (Fault("input", 60, ranks=(rank,)),)
    return analyse(simulate(Job(ranks=ranks, steps=120, ranks_per_host=4, faults=faults)).run)


def labels(ranks: int, rank: int) -> list[str]:
    chart = ranks_chart(slow(ranks, rank))
    assert chart is not None
    return [bar.label.partition(" · ")[0] for bar in chart.bars]


def test_named_ranks_come_first_then_host_by_host() -> None:
    assert labels(8, 5) == [f"rank {rank}" for rank in (5, 0, 1, 2, 3, 4, 6, 7)]


def test_of_many_ranks_the_latest_are_shown_and_the_mean_of_the_others() -> None:
    shown = labels(100, 70)
    assert shown[0] == "rank 70"
    assert len(shown) == MOST_RANKS + 1
    assert shown[-1] == f"mean of the other {100 - MOST_RANKS}"


def test_the_mean_of_the_others_excludes_shown_ranks() -> None:
    analysis = slow(100, 70)
    chart = ranks_chart(analysis)
    assert chart is not None
    shown = {bar.label.partition(" · ")[0] for bar in chart.bars}
    others = [rank for rank in analysis.ranks if f"rank {rank.rank}" not in shown]
    waits = [rank.wait_ms for rank in others if rank.wait_ms is not None]
    (wait,) = [segment.value for segment in chart.bars[-1].segments if segment.name == "wait"]
    assert wait == pytest.approx(sum(waits) / len(waits))
