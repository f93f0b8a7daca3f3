"""Numbers as people read them: three significant digits, the unit that reads well, intervals."""

from __future__ import annotations

import math
from typing import NamedTuple

NOT_MEASURED = "not measured"
NO_INTERVAL = "too few steps"

Interval = tuple[float, float]

_DIGITS = 3
# An interval much smaller than its value earns the value this many more digits, and no more.
_MORE_DIGITS = 2

# Units of time: their length in milliseconds, and up to where they read well.
_TIMES = (
    ("µs", 1e-3, 0.1),
    ("ms", 1.0, 1e3),
    ("s", 1e3, 180e3),
    ("min", 60e3, 180 * 60e3),
    ("h", 3600e3, 72 * 3600e3),
    ("d", 86400e3, math.inf),
)
_LENGTHS = {name: length for name, length, _ in _TIMES}


class Scale(NamedTuple):
    """A unit, and what values are multiplied with to be in it."""

    unit: str
    factor: float


def scale_for(largest: float, unit: str) -> Scale:
    """The unit in which values up to ``largest`` read well; units that are no times stay."""
    length = _LENGTHS.get(unit)
    if length is None or not math.isfinite(largest) or largest == 0:
        return Scale(unit, 1.0)
    milliseconds = abs(largest) * length
    name, own, _ = next(time for time in _TIMES if milliseconds < time[2])
    return Scale(name, length / own)


def rate_scale(counted: str) -> Scale:
    """The unit in which rates of ``samples``, ``steps`` or ``epochs`` per second read well."""
    return Scale("epochs/h", 3600.0) if counted == "epochs" else Scale(f"{counted}/s", 1.0)


def finite(value: float | None) -> float | None:
    """The value; None where it is none that can be shown."""
    return value if value is not None and math.isfinite(value) else None


def significant(value: float, beside: float | None = None) -> str:
    """Three significant digits without exponents; from 1,000 on, whole numbers.

    Args:
        value: what is written.
        beside: a total that it is shown beside; below a ten-thousandth of it no digits are shown.
    """
    decimals = _decimals(value)
    if beside is not None and decimals > _decimals(beside) + 1:
        decimals = _decimals(beside) + 1
        smallest = 10.0**-decimals
        if 0 < value < smallest / 2:
            return f"<{fixed(smallest, decimals)}"
    return fixed(value, decimals)


def signed(value: float, beside: float | None = None, ci95: Interval | None = None) -> str:
    """As ``significant``, or with its interval, always with a sign unless it is zero."""
    text = significant(value, beside) if ci95 is None else plus_minus(value, ci95)
    return f"+{text}" if value > 0 and text[0].isdigit() else text


def percent(fraction: float) -> str:
    """A fraction as a percentage: 51.5%, 6.1%, <0.1%."""
    if 0 < abs(fraction) < 0.0005:
        return "<0.1%" if fraction > 0 else ">−0.1%"
    text = f"{fraction:.1%}" if abs(fraction) < 0.9995 else f"{fraction:.0%}"
    return text.replace("-", "−")


def exact_percent(fraction: float, ci95: Interval | None) -> str:
    """A percentage with the digits that its interval gives it, where the interval stands elsewhere."""
    if ci95 is None or ci95[0] == ci95[1]:
        return percent(fraction)
    ends = (ci95[0] * 100, ci95[1] * 100)
    return f"{fixed(fraction * 100, decimals_of(fraction * 100, ends))}%"


def share(fraction: float | None) -> str:
    """As ``percent``, where it may not have been measured."""
    return NOT_MEASURED if fraction is None else percent(fraction)


def plus_minus(value: float, ci95: Interval | None) -> str:
    """A value and the half width of its 95 % interval, to the half width's first digit: 38.2 ± 0.6."""
    if ci95 is None:
        return significant(value)
    half = (ci95[1] - ci95[0]) / 2
    if math.isinf(half):  # a rate whose step time may be nothing
        return f"{significant(value)} ± ∞"
    return with_half(value, half, decimals_of(value, ci95))


def decimals_of(value: float, ci95: Interval | None) -> int:
    """Digits after the decimal point that a value deserves: to the first digit of its half width."""
    usual = _decimals(value)
    half = 0.0 if ci95 is None else (ci95[1] - ci95[0]) / 2
    return min(_decimals(half, digits=1), usual + _MORE_DIGITS) if half else usual


def with_half(value: float, half: float, decimals: int) -> str:
    """A value and the half width of its interval: 38.2 ± 0.6, or ± <0.1 where that rounds to nothing."""
    smallest = 10.0**-decimals
    if 0 < half < smallest / 2:
        return f"{fixed(value, decimals)} ± <{fixed(smallest, decimals)}"
    return f"{fixed(value, decimals)} ± {fixed(half, decimals)}"


def between(low: float, high: float) -> str:
    """The ends of an interval, with one more digit where they are alike without it: 1.25–1.26.

    A dash beside a minus would be read twice: −0.50 to 0.25.
    """
    decimals = decimals_between(low, high)
    texts = fixed(low, decimals), fixed(high, decimals)
    return (" to " if low < 0 else "–").join(dict.fromkeys(texts))


def decimals_between(low: float, high: float) -> int:
    """Decimal digits that distinguish the ends of an interval, as far as one more does."""
    usual = _decimals(low)
    return usual + (fixed(low, usual) == fixed(high, usual))


def ratio(value: float, ci95: Interval | None) -> str:
    """A ratio with the digits that tell the ends of its interval apart: it never seems outside."""
    return significant(value) if ci95 is None else fixed(value, decimals_between(*ci95))


def interval(ci95: Interval | None, unit: str) -> str:
    """The ends of an interval in the unit that reads well: 37.6–38.8 ms; or why there is none."""
    if ci95 is None:
        return NO_INTERVAL
    scale = scale_for(max(map(abs, ci95)), unit)
    return f"{between(ci95[0] * scale.factor, ci95[1] * scale.factor)} {scale.unit}"


def rate(samples_per_second: float | None) -> str:
    """1,234 samples/s"""
    known = finite(samples_per_second)
    return NOT_MEASURED if known is None else f"{significant(known)} samples/s"


def amount(value: float | None, unit: str, ci95: Interval | None = None) -> str:
    """A value in the unit that reads well, with its interval: 9.70 ± 0.33 ms."""
    if finite(value) is None or value is None:
        return NOT_MEASURED
    scale = scale_for(value, unit)
    inside = None if ci95 is None else (ci95[0] * scale.factor, ci95[1] * scale.factor)
    return f"{plus_minus(value * scale.factor, inside)} {scale.unit}"


def exact(value: float | None, unit: str, ci95: Interval | None) -> str:
    """A value with the digits that its interval gives it, where the interval stands elsewhere."""
    known = finite(value)
    if known is None:
        return NOT_MEASURED
    scale = scale_for(known, unit)
    inside = None if ci95 is None else (ci95[0] * scale.factor, ci95[1] * scale.factor)
    value = known * scale.factor
    return f"{fixed(value, decimals_of(value, inside))} {scale.unit}"


def _decimals(value: float, digits: int = _DIGITS) -> int:
    if value == 0:
        return 0
    rounded = float(f"{abs(value):.{digits - 1}e}")
    return max(0, digits - 1 - math.floor(math.log10(rounded)))


def fixed(value: float, decimals: int) -> str:
    """So many digits after the decimal point; what rounds to zero has no sign."""
    text = f"{value:,.{decimals}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")
