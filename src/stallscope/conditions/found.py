"""What a figure is: how it is read from an analysis, and what is found there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stallscope.analysis import Analysis
from stallscope.arrays.stats import Mean
from stallscope.query.kinds import Kind

from .quantities import Missing, Quantity, estimate

#: Why what is held against a baseline is not known.
NO_BASELINE = "there is no baseline; --baseline names one"


@dataclass(frozen=True)
class Word:
    """A figure that is a word; ``unsure`` is why it stands for not knowing, where it does."""

    text: str
    unsure: str = ""


Found = Quantity | Word | Missing


@dataclass(frozen=True)
class Figure:
    """What a name stands for. ``whose`` is ``run`` or ``baseline``: whose chance is in it."""

    kind: Kind
    read: Callable[[Analysis, str], Found]
    #: What a word can be; empty where it can be anything.
    choices: tuple[str, ...] = ()
    #: Whether a baseline has it, too.
    of_baseline: bool = True


def count(number: int) -> Quantity:
    """A number that is exact."""
    return Quantity(float(number), Kind.NUMBER)


def number(value: float | None, kind: Kind, whose: str, without: str) -> Found:
    """An amount that is known without an interval."""
    if value is None:
        return Missing("it was not measured")
    return estimate(Mean(value, None), kind, whose, without)


def unmeasured(analysis: Analysis) -> Missing:
    """That stages were not measured, with the verdict's reason where it has one."""
    evidence = analysis.bottleneck.evidence.rstrip(".")
    if analysis.bottleneck.kind != "insufficient_data" or not evidence:
        return Missing("it was not measured")
    return Missing(evidence[0].lower() + evidence[1:])
