"""Write numbers and ages for people: three significant digits, a readable unit, intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..arrays.types import Ints

NOT_MEASURED = "not measured"
NO_INTERVAL = "too few steps"

Interval = tuple[float, float]

_DIGITS = 3
# The most additional digits of a value with a small interval.
_MORE_DIGITS = 2
# An interval is written by its ends if one is so many times closer to the value than the other.
_SKEW = 0.4

# Larger speed-ups are said as the share of the time that is saved.
_LARGEST_FACTOR = 20.0

# Units of time: their length, and the value up to which they are used, in milliseconds.
_TIMES = (
    ("µs", 1e-3, 0.1),
    ("ms", 1.0, 1e3),
    ("s", 1e3, 180e3),
    ("min", 60e3, 180 * 60e3),
    ("h", 3600e3, 72 * 3600e3),
    ("d", 86400e3, math.inf),
)
_LENGTHS = {name: length for name, length, _ in _TIMES}
# Units of ages, in seconds.
_WHOLE_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


class Scale(NamedTuple):
    """A unit, and the factor that converts values to it."""

    unit: str
    factor: float


def scale_for(largest: float, unit: str) -> Scale:
    """Choose a readable unit for times up to ``largest``; other units stay."""
    length = _LENGTHS.get(unit)
    if length is None or not math.isfinite(largest) or largest == 0:
        return Scale(unit, 1.0)
    milliseconds = abs(largest) * length
    name, unit_length, _ = next(time for time in _TIMES if milliseconds < time[2])
    return Scale(name, length / unit_length)


def rate_scale(counted: str) -> Scale:
    """Choose a readable unit for rates per second of samples, tokens, steps or epochs."""
    return Scale("epochs/h", 3600.0) if counted == "epochs" else Scale(f"{counted}/s", 1.0)


def finite(value: float | None) -> float | None:
    """Return the value; None if it is missing, infinite or NaN."""
    return value if value is not None and math.isfinite(value) else None


def significant(value: float, total: float | None = None) -> str:
    """Write three significant digits without exponents; whole numbers from 1,000 on.

    Args:
        value: the number.
        total: a total that it is shown with; digits below a ten-thousandth of it are left out.
    """
    decimals = _decimals(value)
    if total is not None and decimals > _decimals(total) + 1:
        decimals = _decimals(total) + 1
        smallest = 10.0**-decimals
        if 0 < value < smallest / 2:
            return f"<{fixed(smallest, decimals)}"
    return fixed(value, decimals)


def signed(value: float, total: float | None = None, ci95: Interval | None = None) -> str:
    """Write a number, or one with its interval, always with a sign unless it is zero."""
    text = significant(value, total) if ci95 is None else plus_minus(value, ci95)
    return f"+{text}" if value > 0 and text[0].isdigit() else text


def percent(fraction: float) -> str:
    """Write a fraction as a percentage: 51.5%, 6.1%, <0.1%."""
    if not math.isfinite(fraction):
        return NOT_MEASURED
    if 0 < abs(fraction) < 0.0005:
        if fraction > 0:
            return "<0.1%"
        # A sign before "<" would not be read; a digit more says it.
        return f"−{-fraction:.2%}" if fraction <= -0.00005 else "0.0%"
    text = f"{fraction:.1%}" if abs(fraction) < 0.9995 else f"{fraction:,.0%}"
    return text.replace("-", "−")


def percent_ends(ci95: Interval) -> str:
    """Write an interval of a fraction, with one more digit if its ends look equal: 40.0% to 41.5%."""
    low, high = map(percent, ci95)
    if low == high:
        low, high = (f"{fixed(end * 100, 2)}%" for end in ci95)
    return low if low == high else f"{low} to {high}"


def exact_percent(fraction: float, ci95: Interval | None) -> str:
    """Write a percentage with the digits of its interval, which is shown elsewhere."""
    if ci95 is None or ci95[0] == ci95[1] or not math.isfinite(fraction):
        return percent(fraction)
    ends = (ci95[0] * 100, ci95[1] * 100)
    return f"{fixed(fraction * 100, decimals_of(fraction * 100, ends))}%"


def share(fraction: float | None) -> str:
    """Write a fraction that may not have been measured as a percentage."""
    return NOT_MEASURED if fraction is None else percent(fraction)


def plus_minus(value: float, ci95: Interval | None) -> str:
    """Write a value ± the half width of its 95 % interval, to that one's first digit: 38.2 ± 0.6.

    The ends stand in its place if one is much further off: 38.2 (35.1–38.6).
    """
    if ci95 is None:
        return significant(value)
    below, above = value - ci95[0], ci95[1] - value
    if min(below, above) < _SKEW * max(below, above):
        return f"{fixed(value, decimals_between(*ci95))} ({between(*ci95)})"
    half = (ci95[1] - ci95[0]) / 2
    decimals = decimals_of(value, ci95)
    # Of large numbers, digits that the interval leaves open are zeros: 41,200 ± 900.
    places = min(_places(value), _places(half, digits=1)) if decimals == 0 and half else 0
    return with_half(value, half, decimals - max(0, places))


def decimals_of(value: float, ci95: Interval | None) -> int:
    """Return the decimals of a value: to the first digit of its interval's half width."""
    usual = _decimals(value)
    half = 0.0 if ci95 is None else (ci95[1] - ci95[0]) / 2
    return min(_decimals(half, digits=1), usual + _MORE_DIGITS) if half else usual


def with_half(value: float, half: float, decimals: int) -> str:
    """Write a value ± a half width: 38.2 ± 0.6, or ± <0.1 if that rounds to zero."""
    smallest = 10.0**-decimals
    if 0 < half < smallest / 2:
        return f"{fixed(value, decimals)} ± <{fixed(smallest, decimals)}"
    return f"{fixed(value, decimals)} ± {fixed(half, decimals)}"


def between(low: float, high: float) -> str:
    """Write the ends of an interval, with one more digit if they would look equal: 1.25–1.26.

    With a minus sign, "to" takes the place of the dash: −0.50 to 0.25.
    """
    decimals = decimals_between(low, high)
    texts = fixed(low, decimals), fixed(high, decimals)
    return (" to " if low < 0 else "–").join(dict.fromkeys(texts))


def decimals_between(low: float, high: float) -> int:
    """Return the decimals that distinguish the ends of an interval, at most one more than usual."""
    usual = _decimals(low)
    return usual + (fixed(low, usual) == fixed(high, usual))


def ratio(value: float, ci95: Interval | None) -> str:
    """Write a ratio with the digits of its interval, so that it never seems to lie outside."""
    return significant(value) if ci95 is None else fixed(value, decimals_between(*ci95))


def said_as_share(value: float, ci95: Interval | None) -> bool:
    """Whether a speed-up, or an end of its interval, is too large to say anything as a factor."""
    return bool(max((value, *(ci95 or ()))) > _LARGEST_FACTOR)


def faster(value: float, ci95: Interval | None) -> tuple[str, str]:
    """Write a speed-up and what it is of: 1.25×, as fast; or 98.5%, shorter, for a large factor."""
    if not said_as_share(value, ci95):
        return f"{ratio(value, ci95)}×", "as fast"
    return percent(share_saved(value)), "shorter"


def faster_in_short(value: float, ci95: Interval | None) -> str:
    """Write a speed-up in a cell: 1.25×, or 98.5% shorter."""
    figure, of = faster(value, ci95)
    return f"{figure} {of}" if said_as_share(value, ci95) else figure


def faster_in_words(value: float, ci95: Interval | None) -> str:
    """Write a speed-up in a sentence: 1.25× as fast, or 98.5% shorter."""
    return " ".join(faster(value, ci95))


def faster_between(value: float, ci95: Interval) -> str:
    """Write the interval of a speed-up, as ``faster`` writes the speed-up: 1.24–1.26×."""
    low, high = sorted(ci95)
    if not said_as_share(value, ci95):
        return f"{between(low, high)}×"
    return f"{between(100 * share_saved(low), 100 * share_saved(high))}% shorter"


def share_saved(speedup: float) -> float:
    """Return the share of a step's time that a speed-up saves."""
    return 1 - 1 / speedup if speedup > 0 else 0.0


def interval(ci95: Interval | None, unit: str) -> str:
    """Write the ends of an interval in a readable unit: 37.6–38.8 ms; or why there is none."""
    if ci95 is None:
        return NO_INTERVAL
    scale = scale_for(max(map(abs, ci95)), unit)
    return f"{between(ci95[0] * scale.factor, ci95[1] * scale.factor)} {scale.unit}"


def rate(samples_per_second: float | None) -> str:
    """Write a rate: 1,234 samples/s."""
    known = finite(samples_per_second)
    return NOT_MEASURED if known is None else f"{significant(known)} samples/s"


def rate_between(low: float, high: float) -> str:
    """Write the ends of a rate's interval: 1,200 to 1,234 samples/s."""
    return f"{significant(low)} to {rate(high)}"


def amount(value: float | None, unit: str, ci95: Interval | None = None) -> str:
    """Write a value in a readable unit, with its interval: 9.70 ± 0.33 ms."""
    if finite(value) is None or value is None:
        return NOT_MEASURED
    scale = scale_for(value, unit)
    inside = None if ci95 is None else (ci95[0] * scale.factor, ci95[1] * scale.factor)
    return f"{plus_minus(value * scale.factor, inside)} {scale.unit}"


def exact(value: float | None, unit: str, ci95: Interval | None) -> str:
    """Write a value with the digits of its interval, which is shown elsewhere."""
    known = finite(value)
    if known is None:
        return NOT_MEASURED
    scale = scale_for(known, unit)
    inside = None if ci95 is None else (ci95[0] * scale.factor, ci95[1] * scale.factor)
    value = known * scale.factor
    return f"{fixed(value, decimals_of(value, inside))} {scale.unit}"


def typical(counts: Ints) -> str:
    """Write the typical one of some counts: 20; or 1 to 24 if they differ by more than a factor of 2."""
    ordered = counts.copy()
    ordered.sort()
    low, middle, high = (int(ordered[len(ordered) * tenths // 10]) for tenths in (1, 5, 9))
    return f"{middle:,}" if high <= 2 * low else f"{low:,} to {high:,}"


def _decimals(value: float, digits: int = _DIGITS) -> int:
    return max(0, -_places(value, digits))


def _places(value: float, digits: int = _DIGITS) -> int:
    """Return the power of ten of the last of so many digits: 2 of 41,234, −1 of 38.2."""
    if value == 0 or not math.isfinite(value):
        return 0
    rounded = float(f"{abs(value):.{digits - 1}e}")
    return math.floor(math.log10(rounded)) - digits + 1


# Tables of a thousand ranks repeat the same figures.
@lru_cache(1 << 12)
def fixed(value: float, decimals: int) -> str:
    """Write a number with this many decimals; zero has no sign, and NaN was not measured.

    With −2 decimals, it is rounded to hundreds.
    """
    if not math.isfinite(value):
        return NOT_MEASURED
    rounded = round(value, decimals) if decimals < 0 else value
    text = f"{rounded:,.{max(decimals, 0)}f}"
    if not text.startswith("-"):
        return text
    return f"−{text[1:]}" if text.strip("-0.,") else text[1:]


# -- Cells of tables, and ages ----------------------------------------------------------------------


@dataclass(frozen=True)
class Cells:
    """Milliseconds in one unit, with the digits of the largest."""

    scale: Scale
    largest: float | None

    @classmethod
    def for_all(cls, milliseconds: Iterable[float | None]) -> Cells:
        """Choose a readable unit for the largest of these values."""
        most = max((finite(value) or 0.0 for value in milliseconds), default=0.0)
        return cls(scale_for(most, "ms"), most)

    @property
    def unit(self) -> str:
        return self.scale.unit

    def plain(self, value: float | None) -> str:
        known = finite(value)
        return NOT_MEASURED if known is None else significant(self._in(known), self._largest_shown)

    def excess(self, value: float | None, ci95: Interval | None = None) -> str:
        """Write a difference with its sign."""
        known = finite(value)
        if known is None:
            return NOT_MEASURED
        return signed(self._in(known), self._largest_shown, self._inside(ci95))

    def mean(self, value: float | None, ci95: Interval | None) -> str:
        known = finite(value)
        return NOT_MEASURED if known is None else plus_minus(self._in(known), self._inside(ci95))

    def _in(self, value: float) -> float:
        return value * self.scale.factor

    def _inside(self, ci95: Interval | None) -> Interval | None:
        return None if ci95 is None else (self._in(ci95[0]), self._in(ci95[1]))

    @property
    def _largest_shown(self) -> float | None:
        return self._in(self.largest) if self.largest else None


def age(began: str | None, now: datetime) -> str:
    """Write an age: 5 h; empty if the start is unknown."""
    if began is None:
        return ""
    seconds = (now - datetime.fromisoformat(began)).total_seconds()
    return "now" if seconds < 60 else rough_duration(seconds)


def rough_duration(seconds: float) -> str:
    """Write a duration in whole units, rounded down: 12 min."""
    return next(
        f"{int(seconds // length)} {unit}"
        for length, unit in _WHOLE_UNITS
        if seconds >= length or length == 1
    )
