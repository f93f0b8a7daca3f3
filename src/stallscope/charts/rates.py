"""Rates and efficiencies over numbers of ranks."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.arrays.stats import Mean


@dataclass(frozen=True)
class RateBar:
    """The rates on one number of ranks. None is what is not known, or was not measured."""

    ranks: int
    steady: Mean
    whole_job: Mean | None
    ideal: float | None
    projected: bool = False


@dataclass(frozen=True)
class RateBars:
    """Per number of ranks a bar of the rate, with its whisker, beside what would be ideal."""

    title: str
    sentence: str
    unit: str
    bars: tuple[RateBar, ...]


@dataclass(frozen=True)
class Line:
    """Efficiencies (fractions) over ranks; ``others`` is a published curve, not the user's own."""

    name: str
    points: tuple[tuple[int, Mean], ...]
    projected: bool = False
    others: bool = False


@dataclass(frozen=True)
class EfficiencyLines:
    """Efficiencies over ranks, every doubling of them as wide as the next."""

    title: str
    sentence: str
    lines: tuple[Line, ...]
