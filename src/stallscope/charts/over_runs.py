"""A figure over a job's runs in order."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.arrays.stats import Mean


@dataclass(frozen=True)
class RunDot:
    """A run's figure; without ``mean`` it was not measured."""

    name: str
    mean: Mean | None


@dataclass(frozen=True)
class Level:
    """The figure's level from one run to another, both included and counted from 1."""

    first: int
    last: int
    begin: float
    end: float


@dataclass(frozen=True)
class OverRuns:
    """Dots in the order of the runs, levels or a drift through them, and marks where levels change.

    The axis does not start at zero, so that differences between runs show.
    """

    title: str
    sentence: str
    unit: str
    dots: tuple[RunDot, ...]
    levels: tuple[Level, ...]
    #: The first run of each new level, and its label.
    marks: tuple[tuple[int, str], ...] = ()
