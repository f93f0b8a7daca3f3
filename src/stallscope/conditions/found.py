"""Figures, and the kinds of their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stallscope.analysis import Analysis
from stallscope.arrays.stats import Mean
from stallscope.query.kinds import Kind

from .quantities import Missing, Quantity, estimate

#: Why comparisons with a baseline are unknown.
NO_BASELINE = "there is no baseline; --baseline names one"


@dataclass(frozen=True)
class WordValue:
    """The value of a figure that is a word; ``unsure`` is the reason for an unknown one."""

    text: str
    unsure: str = ""


@dataclass(frozen=True)
class Truth:
    """The value of a figure that is a condition by itself, with its reason in a sentence."""

    held: bool
    why: str


Found = Quantity | WordValue | Truth | Missing


@dataclass(frozen=True)
class NamedFigure:
    """A named figure; ``source`` is ``run`` or ``baseline``, the source of its uncertainty."""

    kind: Kind
    read: Callable[[Analysis, str], Found]
    #: The possible words; empty if any word is possible.
    choices: tuple[str, ...] = ()
    #: Whether a baseline has it, too.
    of_baseline: bool = True


def count(number: int) -> Quantity:
    """Return an exact number."""
    return Quantity(float(number), Kind.NUMBER)


def number(value: float | None, kind: Kind, source: str, without: str) -> Found:
    """Return an amount without an interval."""
    if value is None:
        return Missing("it was not measured")
    return estimate(Mean(value, None), kind, source, without)


def unmeasured(analysis: Analysis) -> Missing:
    """Return that stages were not measured, with the verdict's reason if it has one."""
    evidence = analysis.bottleneck.evidence.rstrip(".")
    if analysis.bottleneck.kind != "insufficient_data" or not evidence:
        return Missing("it was not measured")
    return Missing(evidence[0].lower() + evidence[1:])
