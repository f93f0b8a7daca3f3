"""A figure over the runs of a job, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.arrays.stats import Mean


@dataclass(frozen=True)
class RunDot:
    """A run's figure with its whisker; None where it was not measured."""

    name: str
    mean: Mean | None


@dataclass(frozen=True)
class Level:
    """What the figure is about from one run to another, both included and counted from 1."""

    first: int
    last: int
    begin: float
    end: float


@dataclass(frozen=True)
class OverRuns:
    """Dots in the order of the runs, levels or a drift through them, and marks where levels change.

    Does not begin at zero: what runs differ by is to be seen.
    """

    title: str
    sentence: str
    unit: str
    dots: tuple[RunDot, ...]
    levels: tuple[Level, ...]
    #: The first run of a new level, and what is said there.
    marks: tuple[tuple[int, str], ...] = ()
