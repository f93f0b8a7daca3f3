"""Figures of a benchmark, with their alternatives and targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paired import Difference

#: What ``Figure.met`` means, in words.
VERDICTS = {None: "too noisy to tell", True: "met", False: "missed"}
_DIGITS = 3


@dataclass(frozen=True)
class Figure:
    """One figure of a benchmark.

    ``ratio`` is the value over the alternative's, or the inverse where more is better, so that it
    reads as ``target`` does. Fields that were not measured, or have no target, are None.
    """

    name: str
    value: float
    unit: str
    #: An alternative that does the same, and its value in the same unit.
    alternative: str | None = None
    alternative_value: float | None = None
    ratio: float | None = None
    #: The target in words.
    target: str | None = None
    met: bool | None = None
    #: 95 % interval of the value; None for counts and single measurements.
    interval: tuple[float, float] | None = None
    #: 95 % interval of the ratio, where it was measured round by round.
    ratio_interval: tuple[float, float] | None = None

    @classmethod
    def of(cls, content: dict[str, Any]) -> Figure:
        """Read a figure from JSON; ignore keys that a later version adds."""
        known = {name: content[name] for name in cls.__dataclass_fields__ if name in content}
        for name in ("interval", "ratio_interval"):
            ends = known.get(name)
            known[name] = tuple(ends) if ends else None
        return cls(**known)


def at_most(
    name: str,
    value: float,
    unit: str,
    limit: float,
    *,
    interval: tuple[float, float] | None = None,
) -> Figure:
    """Make a figure that must not exceed a limit in its own unit.

    If the limit lies within the interval, the result is unknown.
    """
    low, high = interval or (value, value)
    target = f"at most {number(limit)} {unit}"
    return Figure(
        name, value, unit, target=target, met=_decided(low, high, limit), interval=interval
    )


def share_of(
    name: str,
    value: float,
    unit: str,
    alternative: str,
    alternative_value: float,
    *,
    most: float | None = None,
    interval: tuple[float, float] | None = None,
    alternative_interval: tuple[float, float] | None = None,
) -> Figure:
    """Make a figure that may be at most a share of its alternative's; both may be uncertain."""
    # A share of an alternative that costs nothing has no meaning.
    ratio = value / alternative_value if alternative_value > 0 else None
    target = None if most is None else f"at most {number(most)} of it"
    met = None
    if most is not None:
        low, high = interval or (value, value)
        alternative_low, alternative_high = alternative_interval or (
            alternative_value,
            alternative_value,
        )
        met = _decided(low - most * alternative_high, high - most * alternative_low, 0.0)
    return Figure(name, value, unit, alternative, alternative_value, ratio, target, met, interval)


def times_as_much(
    name: str,
    value: float,
    unit: str,
    alternative: str,
    alternative_value: float,
    ratio: Difference,
    most: float,
) -> Figure:
    """Make a figure that may be at most so many times its alternative's.

    ``ratio`` is measured round by round, so its interval excludes disturbances that both share.
    """
    return Figure(
        name,
        value,
        unit,
        alternative,
        alternative_value,
        ratio.value,
        f"at most {number(most)} times as much",
        _decided(ratio.low, ratio.high, most),
        ratio_interval=ratio.interval,
    )


def added(
    name: str,
    cost: Difference,
    against: str,
    alternative: str,
    alternative_cost: Difference,
    *,
    most: float,
) -> list[Figure]:
    """Make the figures of the recorder's cost: at most 50 µs, and at most a share of another's cost."""
    share = share_of(
        f"{name}, against {against}",
        cost.value,
        "µs",
        alternative,
        alternative_cost.value,
        most=most,
        interval=cost.interval,
        alternative_interval=alternative_cost.interval,
    )
    return [at_most(name, cost.value, "µs", 50, interval=cost.interval), share]


def times_faster(
    name: str,
    value: float,
    unit: str,
    alternative: str,
    alternative_value: float,
    *,
    least: float | None = None,
) -> Figure:
    """Make a figure of a time that is so many times faster than its alternative's."""
    ratio = alternative_value / value
    target = None if least is None else f"at least {number(least)} × as fast"
    met = None if least is None else ratio >= least
    return Figure(name, value, unit, alternative, alternative_value, ratio, target, met)


def _decided(low: float, high: float, limit: float) -> bool | None:
    """Return whether the interval is within the limit; None if only a part of it is."""
    return None if low <= limit < high else high <= limit


def number(value: float) -> str:
    """Format a number with three significant digits, without unneeded zeros."""
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (_DIGITS - 1):
        return f"{value:,.0f}"
    return f"{value:.{_DIGITS}g}"
