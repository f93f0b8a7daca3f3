"""Tables of the scorecard's pages as Markdown, and targets with their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

Cell = dict[str, Any]

NOTHING = "–"
#: The ranks that have a fault.
WHO = {"one": "one rank", "all": "all ranks", "rotating": "another in every step"}

RIGHT = 0.95
FALSE_ALARMS = 0.02
#: Scope of the bars on faults: least size, steps, and largest noise.
PERCENT, STEPS, CV = 10, 500, 0.1

#: A verdict is about the fault only if the fault clearly costs more than exposed allreduce.
CLEARLY = 1.25

#: A miss that so many runs produce by chance does not count.
CHANCE = 0.01

MISSES = "## Missed targets, and why"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a Markdown table; all columns but the first ``texts`` are numbers."""
    lines = [head, ["---"] * texts + ["---:"] * (len(head) - texts), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(share: float | None, digits: int = 1) -> str:
    """Format a share as a percentage; only exact 0 and 1 print as 0 % and 100 %."""
    if share is None:
        return NOTHING
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    smallest = 10.0**-digits
    if round(share * 100, digits) >= 100:
        return f">{100 - smallest:.{digits}f} %"
    if 0 < share * 100 < smallest / 2:
        return f"<{smallest:.{digits}f} %"
    return f"{share * 100:.{digits}f} %"


def run_share(cells: Iterable[Cell], name: str) -> float | None:
    """Return the share of all runs of some cells; None if no cell has it."""
    known = [cell for cell in cells if name in cell]
    runs = sum(cell["runs"] for cell in known)
    return sum(cell[name] * cell["runs"] for cell in known) / runs if runs else None


def interval(count: int, runs: int) -> str:
    """Return the exact 95 % interval of a share (Clopper and Pearson)."""
    low = stats.beta.ppf(0.025, count, runs - count + 1) if count else 0.0
    high = stats.beta.ppf(0.975, count + 1, runs - count) if count < runs else 1.0
    return f"{low * 100:.1f}–{high * 100:.1f} %"


def share_interval(count: int, runs: int) -> str:
    """Return Wilson's 95 % interval of a share."""
    interval = stats.binomtest(count, runs).proportion_ci(method="wilson")
    return f"95 % interval {interval.low * 100:.1f} to {interval.high * 100:.1f} %"


def ms(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+.2f}".replace("-", "−")


def ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


# -- targets -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A target and its result."""

    what: str
    needed: str
    result: str
    #: None if not measured.
    passed: bool | None
    #: One sentence for each kind of miss.
    misses: tuple[str, ...] = ()


def bar_table(bars: Sequence[Bar]) -> str:
    """Return a table of targets and results."""
    words = {True: "passed", False: "**missed**", None: "not measured"}
    rows = [(bar.what, bar.needed, bar.result, words[bar.passed]) for bar in bars]
    return table(("", "target", "result", ""), rows, texts=4)


def counted(number: int, unit: str) -> str:
    """Write a number of things, whose plural has an s."""
    return f"{number} {unit}{'' if number == 1 else 's'}"


def share_bar(
    what: str,
    runs: Sequence[Cell],
    holds: Callable[[Cell], bool],
    least: float,
    miss: Callable[[Cell], str],
    unit: str = "run",
) -> Bar:
    """Return the bar on the least share of runs, or of another unit, for which something holds."""
    needed, right = f"≥ {least * 100:g} % of {unit}s", sum(map(holds, runs))
    if not runs:
        return Bar(what, needed, NOTHING, None)
    share = f"{percent(right / len(runs))} of {counted(len(runs), unit)}"
    return Bar(
        what,
        needed,
        f"{share} ({share_interval(right, len(runs))})",
        right >= least * len(runs),
        tuple(miss(run) for run in runs if not holds(run)),
    )


def error_bar(
    what: str,
    most: float,
    errors: Sequence[float],
    quantile: float,
    misses: Iterable[str] = (),
    unit: str = "pair",
) -> Bar:
    """Return the bar on a quantile of absolute errors, which are shares of the step.

    The misses are shown if the target is missed.
    """
    needed = f"≤ {most * 100:g} % of the step"
    if not errors:
        return Bar(what, needed, NOTHING, None)
    value = float(np.quantile(errors, quantile))
    passed = value <= most
    shown = () if passed else tuple(misses)
    return Bar(what, needed, f"{percent(value)}; {counted(len(errors), unit)}", passed, shown)


def alarm_bar(
    what: str,
    runs: Sequence[Cell],
    quiet: Callable[[Cell], bool],
    miss: Callable[[Cell], str],
) -> Bar:
    """Return the bar on runs without a fault in which a rank or host is named all the same."""
    alarms = tuple(miss(run) for run in runs if not quiet(run))
    return Bar(
        what,
        f"≤ {FALSE_ALARMS * 100:g} % of runs",
        f"{len(alarms)} of {len(runs)} runs",
        len(alarms) <= FALSE_ALARMS * len(runs),
        alarms,
    )


def of_all(runs: Sequence[Cell], holds: Callable[[Cell], bool]) -> str:
    """Write for how many of all runs something holds."""
    return f"{sum(map(holds, runs))} of {len(runs)}" if runs else NOTHING


def page_of(parts: Sequence[str], bars: Sequence[Bar], *ends: str) -> str:
    """Return a page of parts; every miss comes before its ends, once."""
    missed = dict.fromkeys(f"- {miss}" for bar in bars for miss in bar.misses)
    listed = ["## Misses", "\n".join(missed)] if missed else []
    return "\n\n".join([*parts, *listed, *ends]).rstrip() + "\n"


def misses(bars: Sequence[Bar]) -> str:
    """Return the misses of every missed bar; empty if there are none."""
    parts = []
    for bar in (bar for bar in bars if bar.misses):
        parts += [f"**{bar.what} {bar.needed}**", "\n".join(f"- {miss}" for miss in bar.misses)]
    return "\n\n".join(parts)


def too_many_alarms(alarms: int, runs: int) -> bool:
    """Tell whether there are more false alarms than the allowed rate produces by chance."""
    return bool(stats.binom.sf(alarms - 1, runs, FALSE_ALARMS) < CHANCE)
