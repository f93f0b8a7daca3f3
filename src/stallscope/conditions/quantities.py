"""Compute with amounts and their 95 % intervals, and read them from an analysis.

Errors of figures of different runs are independent and add up as squares. Errors of figures of one run
may be correlated in any way and add up linearly, which is the worst case. Products and quotients are
approximated to first order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from stallscope.analysis import Analysis
from stallscope.analysis.stopped.stopped import Stopped
from stallscope.arrays.stats import Mean
from stallscope.query import field_kinds
from stallscope.query.field_kinds import Kind
from stallscope.query.syntax import Name

#: Why a figure may lack its interval.
TOO_FEW_STEPS = "too few independent steps"

#: Why comparisons with a baseline are unknown.
NO_BASELINE = "there is no baseline; --baseline names one"


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
    #: The sources of its uncertainty: ``run`` or ``baseline``.
    of: frozenset[str] = frozenset()
    #: Why there is no interval; empty otherwise.
    without: str = ""

    @property
    def ci95(self) -> tuple[float, float] | None:
        """Both ends of the interval; None without an interval, or for an exact amount."""
        if self.spread in (None, (0.0, 0.0)):
            return None
        below, above = self.spread or (0.0, 0.0)
        return self.value - below, self.value + above

    def taken_as(self, kind: Kind) -> Quantity:
        """Return the amount with the kind of another one: a plain number takes its unit."""
        if self.kind is not Kind.BARE or kind is not Kind.S:
            return Quantity(self.value, kind, self.spread, self.of, self.without)
        return _quantity(self.value * 1e3, kind, _scaled(self.spread, 1e3), (self,))


def estimate(mean: Mean, kind: Kind, source: str, without: str = TOO_FEW_STEPS) -> Quantity:
    """Convert an estimated mean to an amount."""
    if mean.ci95 is None or not all(map(math.isfinite, mean.ci95)):
        return Quantity(mean.value, kind, None, frozenset({source}), without)
    spread = (mean.value - mean.ci95[0], mean.ci95[1] - mean.value)
    return Quantity(mean.value, kind, spread, frozenset({source}))


def negative(quantity: Quantity) -> Quantity:
    turned = None if quantity.spread is None else (quantity.spread[1], quantity.spread[0])
    return _quantity(-quantity.value, quantity.kind, turned, (quantity,))


def plus(left: Quantity, right: Quantity) -> Quantity:
    kind = field_kinds.same(left.kind, right.kind) or left.kind
    left, right = left.taken_as(kind), right.taken_as(kind)
    spread = _joined(left.spread, right.spread, left, right)
    return _quantity(left.value + right.value, kind, spread, (left, right))


def minus(left: Quantity, right: Quantity) -> Quantity:
    return plus(left, negative(right))


def times(left: Quantity, right: Quantity) -> Quantity:
    kind = field_kinds.product(left.kind, right.kind) or left.kind
    spread = _joined(
        _scaled(left.spread, right.value), _scaled(right.spread, left.value), left, right
    )
    return _quantity(left.value * right.value, kind, spread, (left, right))


def over(dividend: Quantity, divisor: Quantity) -> Quantity | None:
    """Divide; None if the divisor is zero."""
    if divisor.value == 0:
        return None
    kind = field_kinds.quotient(dividend.kind, divisor.kind) or dividend.kind
    value = dividend.value / divisor.value
    ends = divisor.ci95
    if ends is not None and ends[0] <= 0 <= ends[1]:
        why = "a divisor's interval includes 0"
        return Quantity(value, kind, None, dividend.of | divisor.of, why)
    spread = _joined(
        _scaled(dividend.spread, 1 / divisor.value),
        _scaled(divisor.spread, -value / divisor.value),
        dividend,
        divisor,
    )
    return _quantity(value, kind, spread, (dividend, divisor))


def is_finite(quantity: Quantity) -> bool:
    return math.isfinite(quantity.value) and all(map(math.isfinite, quantity.spread or ()))


def _quantity(
    value: float,
    kind: Kind,
    spread: tuple[float, float] | None,
    parts: tuple[Quantity, ...],
) -> Quantity:
    of = frozenset().union(*(part.of for part in parts))
    without = next((part.without for part in parts if part.without), "")
    return Quantity(value, kind, spread, of, without)


def _scaled(spread: tuple[float, float] | None, factor: float) -> tuple[float, float] | None:
    if spread is None:
        return None
    below, above = (spread[0] * abs(factor), spread[1] * abs(factor))
    return (below, above) if factor >= 0 else (above, below)


def _joined(
    first_spread: tuple[float, float] | None,
    second_spread: tuple[float, float] | None,
    first: Quantity,
    second: Quantity,
) -> tuple[float, float] | None:
    if first_spread is None or second_spread is None:
        return None
    if first.of.isdisjoint(second.of):
        below = math.hypot(first_spread[0], second_spread[0])
        return below, math.hypot(first_spread[1], second_spread[1])
    return first_spread[0] + second_spread[0], first_spread[1] + second_spread[1]


# -- found -----------------------------------------------------------------------------------------
#
# Figures, and the kinds of their values.


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


# -- stopping --------------------------------------------------------------------------------------
#
# Figures of a job that hangs, and of logs that stop; they need no analysis of the steps.


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


def _silent_seconds(progress: LogProgress) -> Found:
    if progress.silent_s is None:
        return Missing("only stallscope watch sees whether logs grow")
    return Quantity(progress.silent_s * 1e3, Kind.S)


def _of_analysis(kind: Kind, read: Callable[[LogProgress], Found]) -> NamedFigure:
    return NamedFigure(
        kind, lambda analysis, _: read(LogProgress(analysis.stopped)), of_baseline=False
    )


_READ: dict[str, tuple[Kind, Callable[[LogProgress], Found]]] = {
    "stopped": (Kind.TRUTH, _stopped),
    "stopped.seconds": (Kind.S, _stopped_seconds),
    "silent.seconds": (Kind.S, _silent_seconds),
}


PROGRESS_FIGURES = {name: _of_analysis(kind, read) for name, (kind, read) in _READ.items()}


def is_of_progress(name: Name) -> bool:
    """Return whether the figure needs no analysis."""
    return not name.of_baseline and ".".join(name.path) in _READ


def read_of_progress(progress: LogProgress, name: Name) -> Found:
    """Read a figure for which ``is_of_progress`` holds."""
    if not is_of_progress(name):
        return Missing("it needs the analysis of the run")
    return _READ[".".join(name.path)][1](progress)
