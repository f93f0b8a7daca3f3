"""Round the losses of efficiency of a job's sizes, for tables and charts."""

from __future__ import annotations

from stallscope.analysis import ENTRIES
from stallscope.analysis.scaling import Scaled
from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import Scale, decimals_of
from stallscope.formatting.sums import SumColumn


def lost_of(one: Scaled) -> Mean:
    """Return a size's loss of efficiency, in percent."""
    # A size that is compared with one rank has an efficiency.
    assert one.efficiency is not None
    return Mean(1.0, (1.0, 1.0)).minus(one.efficiency).scaled(100.0)


def lost_to(one: Scaled) -> list[Mean]:
    """Return a size's loss of efficiency to each of ENTRIES, in percent."""
    assert one.lost is not None
    return [one.lost[name].scaled(100.0) for name in ENTRIES]


def lost_column(one: Scaled) -> SumColumn:
    """Return a size's loss of efficiency to each entry and in total, in percent."""
    lost = lost_of(one)
    decimals = 1 if lost.ci95 is None else decimals_of(lost.value, lost.ci95)
    return SumColumn.like(Scale("%", 1.0), decimals, [part.value for part in lost_to(one)])
