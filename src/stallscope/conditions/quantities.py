"""Values of figures with their 95 % intervals, and the names of figures."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stallscope.analysis import Analysis
from stallscope.analysis.stopped.stopped import Stopped
from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import (
    amount,
    between,
    interval,
    percent,
    percent_ends,
    rate,
    significant,
)

from .language import UNITS, Kind

#: Why comparisons with a baseline are unknown.
NO_BASELINE = "there is no baseline; --baseline names one"

#: A part of a figure's name without quotes: ``step_ms``, ``rank:3``.
SIMPLE_PART = r"[A-Za-z_][A-Za-z0-9_]*(?::[A-Za-z0-9_]+)?"

# -- Sides of a comparison, as users write them ---------------------------------------------------


@dataclass(frozen=True)
class Operand:
    """A side of a comparison."""

    #: Its column in the text, counted from 1.
    column: int = field(default=1, compare=False, kw_only=True)


@dataclass(frozen=True)
class Number(Operand):
    """A number as written: 20 with the unit ``%``."""

    value: float
    unit: str

    def __str__(self) -> str:
        whole = self.value.is_integer() and abs(self.value) < 1e15
        return f"{int(self.value) if whole else self.value!r}{self.unit}"

    @property
    def kind(self) -> Kind:
        return UNITS[self.unit][0]

    @property
    def amount(self) -> float:
        """The number as figures are stored: times in milliseconds, shares as fractions."""
        _, factor, divisor = UNITS[self.unit]
        return self.value * factor / divisor


@dataclass(frozen=True)
class Text(Operand):
    text: str

    def __str__(self) -> str:
        return _quoted(self.text)


@dataclass(frozen=True)
class Name(Operand):
    """A figure of the run, or of its baseline, as a list of parts; a number may multiply it.

    Without parts it is ``baseline`` alone: the figure on the other side of the comparison.
    """

    path: tuple[str, ...]
    of_baseline: bool = False
    factor: Number | None = None

    def __str__(self) -> str:
        parts = ("baseline", *self.path) if self.of_baseline else self.path
        name = ".".join(
            part if re.fullmatch(SIMPLE_PART, part) else _quoted(part) for part in parts
        )
        return name if self.factor is None else f"{self.factor}*{name}"


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


# -- values ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Missing:
    """A missing value and its reason, in a sentence."""

    why: str


@dataclass(frozen=True)
class Quantity:
    """An amount; times in milliseconds, shares as fractions."""

    value: float
    kind: Kind
    #: The distances of the interval's ends below and above; (0, 0) is exact, None is no interval.
    spread: tuple[float, float] | None = (0.0, 0.0)
    #: Why there is no interval; empty otherwise.
    without: str = ""
    #: Whether its uncertainty is the baseline's.
    of_baseline: bool = False

    def __str__(self) -> str:
        shown = _value_in_words(self.value, self.kind)
        return shown if self.ci95 is None else f"{shown} ({self.ends()})"

    @property
    def ci95(self) -> tuple[float, float] | None:
        """Both ends of the interval; None without an interval, or for an exact amount."""
        if self.spread in (None, (0.0, 0.0)):
            return None
        below, above = self.spread or (0.0, 0.0)
        return self.value - below, self.value + above

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.value) and all(map(math.isfinite, self.spread or ()))

    def ends(self) -> str:
        """Write the ends of the interval."""
        ends = self.ci95 or (self.value, self.value)
        if self.kind in (Kind.MS, Kind.S):
            return interval(ends, "ms")
        if self.kind is Kind.SHARE:
            return percent_ends(ends)
        return f"{between(*ends)}{' samples/s' if self.kind is Kind.RATE else ''}"

    def scaled(self, factor: float) -> Quantity:
        """Return a multiple of the amount."""
        spread = self.spread
        if spread is not None:
            below, above = spread if factor >= 0 else spread[::-1]
            spread = (below * abs(factor), above * abs(factor))
        return replace(self, value=self.value * factor, spread=spread)

    def minus(self, limit: Quantity) -> Quantity:
        """Return the difference from a limit.

        Errors of different runs are independent and add up as squares. Those of the same run may be
        correlated in any way and add up linearly, which is the worst case.
        """
        value, without = self.value - limit.value, self.without or limit.without
        if self.spread is None or limit.spread is None:
            return Quantity(value, self.kind, None, without)
        add = math.hypot if self.of_baseline != limit.of_baseline else lambda *errors: sum(errors)
        below = add(self.spread[0], limit.spread[1])
        above = add(self.spread[1], limit.spread[0])
        return Quantity(value, self.kind, (below, above))


def _value_in_words(value: float, kind: Kind) -> str:
    if kind is Kind.SHARE:
        return percent(value)
    if kind in (Kind.MS, Kind.S):
        return amount(value, "ms")
    if kind is Kind.RATE:
        return rate(value)
    return f"{value:,.0f}".replace("-", "−") if value.is_integer() else significant(value)


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


FigureValue = Quantity | WordValue | Truth | Missing
#: A figure as an analysis has it; a plain number is exact.
Reading = FigureValue | Mean | float


@dataclass(frozen=True)
class NamedFigure:
    """A named figure of an analysis."""

    kind: Kind
    read: Callable[[Analysis], Reading]
    #: The possible words; empty if any word is possible.
    choices: tuple[str, ...] = ()
    #: Whether a baseline has it, too.
    of_baseline: bool = True
    #: Why it may lack its interval.
    without: str = "too few independent steps"

    def value(self, analysis: Analysis) -> FigureValue:
        value = self.read(analysis)
        if isinstance(value, (int, float)):
            return Quantity(float(value), self.kind)
        if not isinstance(value, Mean):
            return value
        if value.ci95 is None or not all(map(math.isfinite, value.ci95)):
            return Quantity(value.value, self.kind, None, self.without)
        spread = (value.value - value.ci95[0], value.ci95[1] - value.value)
        return Quantity(value.value, self.kind, spread)


def unmeasured(analysis: Analysis) -> Missing:
    """Return that stages were not measured, with the reason if it is known."""
    evidence = analysis.why_no_stages.rstrip(".")
    known = analysis.bottleneck.kind == "insufficient_data" or analysis.printed is not None
    if not known or not evidence:
        return Missing("it was not measured")
    return Missing(evidence[0].lower() + evidence[1:])


# -- Figures of a job that hangs, and of logs that stop; they need no analysis of the steps -------


class LogProgress(NamedTuple):
    """The progress of a run and its logs."""

    #: How the job hangs; None if it does not.
    stopped: Stopped | None
    #: The time since the logs of an open run have grown; None if they were not watched.
    silent_s: float | None = None


def _stopped(progress: LogProgress) -> Truth:
    if progress.stopped is None:
        return Truth(False, "the job does not hang")
    return Truth(True, progress.stopped.evidence.rstrip("."))


def _stopped_seconds(progress: LogProgress) -> Quantity:
    return Quantity(0.0 if progress.stopped is None else progress.stopped.seconds * 1e3, Kind.S)


def _silent_seconds(progress: LogProgress) -> FigureValue:
    if progress.silent_s is None:
        return Missing("only stallscope watch sees whether logs grow")
    return Quantity(progress.silent_s * 1e3, Kind.S)


#: A baseline has none of them.
PROGRESS_FIGURES: dict[str, tuple[Kind, Callable[[LogProgress], FigureValue]]] = {
    "stopped": (Kind.TRUTH, _stopped),
    "stopped.seconds": (Kind.S, _stopped_seconds),
    "silent.seconds": (Kind.S, _silent_seconds),
}
