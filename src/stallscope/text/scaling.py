"""Round the losses of efficiency of a job's sizes, for tables and charts."""

from __future__ import annotations

from stallscope.analysis import ENTRIES
from stallscope.analysis.scaling import Scaled
from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import Scale, decimals_of
from stallscope.formatting.sums import SumColumn


def lost_of(scaled: Scaled) -> Mean:
    """Return a size's loss of efficiency, in percent."""
    # A size that is compared with one rank has an efficiency.
    assert scaled.efficiency is not None
    return Mean(1.0, (1.0, 1.0)).minus(scaled.efficiency).scaled(100.0)


def lost_to(scaled: Scaled) -> list[Mean]:
    """Return a size's loss of efficiency to each of ENTRIES, in percent."""
    assert scaled.lost is not None
    return [scaled.lost[name].scaled(100.0) for name in ENTRIES]


def lost_column(scaled: Scaled) -> SumColumn:
    """Return a size's loss of efficiency to each entry and in total, in percent."""
    lost = lost_of(scaled)
    decimals = 1 if lost.ci95 is None else decimals_of(lost.value, lost.ci95)
    return SumColumn.like(Scale("%", 1.0), decimals, [part.value for part in lost_to(scaled)])
