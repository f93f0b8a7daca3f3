"""Numbers as people read them. What was not measured says so and is never 0."""

from __future__ import annotations

NOT_MEASURED = "not measured"
NO_INTERVAL = "too few steps"


def milliseconds(value: float | None) -> str:
    """A duration in the unit that reads well."""
    if value is None:
        return NOT_MEASURED
    if abs(value) >= 1000:
        return f"{value / 1000:,.2f} s"
    return f"{plain(value)} ms"


def plain(value: float | None) -> str:
    """A number with as many decimals as its size needs; for columns that name their unit."""
    if value is None:
        return NOT_MEASURED
    decimals = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2
    # Rounded first: there is no minus nought.
    return f"{round(value, decimals) or 0.0:,.{decimals}f}".replace("-", "−")


def signed(value: float | None) -> str:
    """A difference, with its sign."""
    if value is None:
        return NOT_MEASURED
    text = plain(value)
    return text if text.startswith("−") or not text.strip("0.,") else f"+{text}"


def interval(ci95: tuple[float, float] | None) -> str:
    """A 95% interval in the unit of its number."""
    if ci95 is None:
        return NO_INTERVAL
    return f"{plain(ci95[0])} to {plain(ci95[1])}"


def percent(fraction: float | None) -> str:
    """A fraction as whole per cent."""
    return NOT_MEASURED if fraction is None else f"{fraction:.0%}"


def rate(samples_per_second: float | None) -> str:
    """A throughput."""
    if samples_per_second is None:
        return NOT_MEASURED
    return f"{plain(samples_per_second)} samples/s"
