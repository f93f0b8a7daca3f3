"""Compare simulated runs with the scorecard's targets, and explain misses.

Reasons are sentences for kinds of cells; a miss of an unknown kind has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from page_tables import (
    CHANCE,
    CV,
    FALSE_ALARMS,
    PERCENT,
    RIGHT,
    STEPS,
    Bar,
    Cell,
    percent,
    run_share,
    too_many_alarms,
)
from scipy import stats

#: Figures that have intervals.
LEDGER = ("step", "input", "compute", "other", "imbalance", "allreduce")
FIXES = ("fix input", "fix other", "fix imbalance", "fix rank:1", "fix allreduce")
#: Noise, unless stated otherwise.
PHI = 0.5

SIZE = 0.10
COVERED = (0.92, 0.98)
GAIN_ERROR = 0.01
# Fixes that are offered in fewer runs say nothing about intervals.
_FEWEST_RUNS = 20

WHO = {
    "one": "Fault on one rank",
    "all": "Fault on all ranks",
    "rotating": "Fault on another rank in every step",
}
SLOW_NOISE = "Any fault, noise with a long correlation (φ = .9)"


def bars(simulated: dict[str, Any]) -> list[Bar]:
    """Return all bars on simulated runs."""
    within = [cell for cell in simulated.get("power", ()) if _within(cell)]
    usual = [cell for cell in within if not _slow_noise(cell)]
    by_who = {WHO[who]: [cell for cell in usual if cell["who"] == who] for who in WHO}
    by_who[SLOW_NOISE] = [cell for cell in within if _slow_noise(cell)]
    return [
        *[_right(what, cells) for what, cells in by_who.items()],
        _false_alarms(simulated.get("clean", ())),
        *[_size(what, cells) for what, cells in by_who.items()],
        _coverage("ledger and step time", _figures(simulated, LEDGER)),
        _coverage("gain of a fix", _figures(simulated, FIXES)),
        _gains(_figures(simulated, FIXES)),
    ]


def _within(cell: Cell) -> bool:
    return bool(cell["percent"] >= PERCENT and cell["steps"] == STEPS and cell["cv"] <= CV)


def _right(what: str, cells: Sequence[Cell]) -> Bar:
    below = [cell for cell in cells if cell["right"] < RIGHT]
    result = f"{percent(run_share(cells, 'right'))} of {_runs(cells):,} runs"
    return _bar(
        f"{what}: cause and rank right",
        f"≥ {RIGHT * 100:g} % of runs",
        f"{result}; {_of(cells, below)} cells",
        cells,
        _explained(below, _MISSED_RIGHT, "right"),
    )


def _false_alarms(cells: Sequence[Cell]) -> Bar:
    alarms, runs = sum(map(_alarms, cells)), _runs(cells)
    above = [cell for cell in cells if too_many_alarms(_alarms(cell), cell["runs"])]
    misses = _explained(above, _MISSED_ALARMS, "innocent_named")
    if alarms > FALSE_ALARMS * runs and not misses:
        misses = [f"all clean cells together: {_NOT_KNOWN}"]
    return _bar(
        "No fault: a rank named",
        f"≤ {FALSE_ALARMS * 100:g} % of runs",
        f"{percent(alarms / max(runs, 1))} of {runs:,} runs; {_of(cells, above)} cells",
        cells,
        misses,
    )


def _alarms(cell: Cell) -> int:
    return round(cell["innocent_named"] * cell["runs"])


def _size(what: str, cells: Sequence[Cell]) -> Bar:
    known = [cell for cell in cells if "recovered" in cell]
    off = [cell for cell in known if abs(cell["recovered"] - 1) > SIZE]
    sizes = [cell["recovered"] for cell in known]
    spread = f"{min(sizes):.2f} to {max(sizes):.2f} times; " if sizes else ""
    return _bar(
        f"{what}: size, median of found / injected",
        f"0.90 to {1 + SIZE:.2f}",
        f"{spread}{_of(known, off)} cells",
        known,
        _explained(off, _MISSED_SIZE, "recovered"),
    )


def _figures(simulated: dict[str, Any], names: Sequence[str]) -> list[Cell]:
    """Return one cell per configuration and figure that has intervals."""
    return [
        {
            **{key: value for key, value in configuration.items() if key != "figures"},
            "figure": name,
            **figure,
        }
        for configuration in simulated.get("coverage", ())
        for name, figure in configuration["figures"].items()
        if name in names and figure["runs"] >= _FEWEST_RUNS
    ]


def _coverage(what: str, figures: Sequence[Cell]) -> Bar:
    given = [figure for figure in figures if "covered" in figure]
    beyond = [figure for figure in given if _beyond(figure)]
    intervals = sum(map(_intervals, given))
    held = sum(figure["covered"] * _intervals(figure) for figure in given)
    without = 1 - intervals / max(sum(figure["runs"] for figure in figures), 1)
    return _bar(
        f"95 % intervals, {what}: the truth within",
        f"{COVERED[0] * 100:g} to {COVERED[1] * 100:g} % of runs",
        f"{percent(held / max(intervals, 1))} of {intervals:,}; {_of(given, beyond)} figures; "
        f"{percent(without)} of runs got none",
        given,
        _explained(beyond, _MISSED_COVERAGE, "covered"),
    )


def _intervals(figure: Cell) -> int:
    return round(figure["runs"] * (1 - figure["without"]))


def _beyond(figure: Cell) -> bool:
    """Tell whether an interval holds the truth too rarely or too often, by more than chance."""
    n, (low, high) = _intervals(figure), COVERED
    held = round(figure["covered"] * n)
    return bool(
        stats.binom.cdf(held, n, low) < CHANCE or stats.binom.sf(held - 1, n, high) < CHANCE
    )


def _gains(figures: Sequence[Cell]) -> Bar:
    off = [figure for figure in figures if figure["error_p95"] > GAIN_ERROR]
    worst = max((figure["error_p95"] for figure in figures), default=0.0)
    return _bar(
        "Gain of a fix: error, 95th percentile of runs",
        f"≤ {GAIN_ERROR * 100:g} % of step time",
        f"{percent(worst, 2)} at worst; {_of(figures, off)} figures",
        figures,
        _explained(off, _MISSED_GAIN, "error_p95"),
    )


def _bar(what: str, needed: str, result: str, cells: Sequence[Cell], misses: Sequence[str]) -> Bar:
    if not cells:
        return Bar(what, needed, "not measured", None)
    return Bar(what, needed, result, not misses, tuple(misses))


def _of(cells: Sequence[Cell], missed: Sequence[Cell]) -> str:
    return f"{len(cells) - len(missed)} of {len(cells)}"


def _runs(cells: Sequence[Cell]) -> int:
    return sum(cell["runs"] for cell in cells)


# -- reasons -------------------------------------------------------------------------------------


def _explained(missed: Sequence[Cell], reasons: Sequence[Reason], figure: str) -> list[str]:
    """Return one sentence per kind of miss, with its cells."""
    kinds: dict[str, list[Cell]] = {}
    for cell in missed:
        reason = next((text for holds, text in reasons if holds(cell)), _NOT_KNOWN)
        kinds.setdefault(reason, []).append(cell)
    return [f"{_listed(cells, figure)}: {reason}" for reason, cells in kinds.items()]


def _listed(cells: Sequence[Cell], figure: str) -> str:
    shown = [f"{_named(cell)} ({_value(cell[figure], figure)})" for cell in cells[:4]]
    more = f" and {len(cells) - 4} more" if len(cells) > 4 else ""
    return ", ".join(shown) + more


def _named(cell: Cell) -> str:
    """Name a cell: ``8-one-compute-10-cv10`` is 8 ranks, compute of one rank +10 %, noise 10 %."""
    name = f"`{cell['name']}`"
    return f"{cell['figure']} in {name}" if "figure" in cell else name


def _value(value: float, figure: str) -> str:
    if figure == "recovered":
        return f"{value:.2f}"
    return percent(value, 2 if figure == "error_p95" else 1)


def _slow_noise(cell: Cell) -> bool:
    return bool(cell["phi"] > PHI)


# Moving lateness that costs a smaller share of the step is not mentioned.
_WORTH = 0.005
_NOT_KNOWN = "no reason is known; this is a defect."

Reason = tuple[Callable[[Cell], bool], str]

_MISSED_RIGHT: tuple[Reason, ...] = (
    (
        lambda cell: cell["who"] == "rotating" and cell.get("cost_share", 1.0) < _WORTH,
        "it costs less than half a percent of the step, because with so many ranks another one is as "
        "late in most steps anyway. The analysis does not report such small costs.",
    ),
    (
        lambda cell: cell["who"] == "rotating" and cell["fault_sds"] < 4,
        "it does not stand out from the noise of its stage in single steps, and the waiting that it "
        "adds is not always larger than the chance difference between run and baseline.",
    ),
    (
        _slow_noise,
        "with noise of such a long correlation, 500 steps count as about 25 independent ones, and a "
        "rank that is slow by chance for a while looks like a slow rank.",
    ),
    (
        lambda cell: cell["ranks"] >= 512 and cell["who"] == "one",
        "the limit grows with the number of ranks to keep false alarms rare.",
    ),
)

_MISSED_ALARMS: tuple[Reason, ...] = (
    (
        lambda cell: "spread" in cell["name"],
        "these ranks have different speeds throughout the run, and the slowest of many is slower than "
        "its peers by more than the tolerated 2 %. It counts as a false alarm all the same.",
    ),
    (
        _slow_noise,
        "noise of such a long correlation looks like a slow rank in a run of 500 steps.",
    ),
)

_MISSED_SIZE: tuple[Reason, ...] = (
    (
        lambda cell: cell["who"] == "rotating" and cell["fault_sds"] < 8,
        "its size is computed from the growth of mean and variance, which such large noise makes "
        "uncertain; if only one of them has grown by more than chance, from the last rank's lateness.",
    ),
    (
        _slow_noise,
        "with few independent steps, only faults that look large by chance are found.",
    ),
)

_MISSED_COVERAGE: tuple[Reason, ...] = (
    (
        lambda cell: cell["covered"] > COVERED[1],
        "the interval is wider than necessary.",
    ),
    (
        lambda cell: cell["ranks"] >= 64 and cell["figure"] in ("fix input", "fix other"),
        "the interval is a few microseconds wide, but the clocks of several hosts are less certain. The "
        "table of errors shows how small the difference is.",
    ),
    (
        lambda cell: cell["figure"] in ("fix input", "fix other"),
        "the replayed steps are few independent ones. The table of errors shows how small the "
        "difference is.",
    ),
    (
        lambda cell: cell["figure"] == "fix imbalance" and "-one-" not in cell["name"],
        "no rank is slow: the analysis reports lateness that varies from step to step by chance, so any "
        "gain is too much.",
    ),
    (
        lambda cell: cell["ranks"] == 2 and cell["figure"] in ("fix imbalance", "fix rank:1"),
        "the only healthy rank is a single peer, and its chance deviations are not in the interval.",
    ),
    (
        _slow_noise,
        "with noise of such a long correlation, 500 steps count as about 25 independent ones, and the "
        "correlation itself is estimated from them.",
    ),
    (
        lambda cell: cell["figure"] in ("fix imbalance", "fix rank:1"),
        "the interval is a share of the whole loss's interval; it does not contain how uncertain the "
        "split among faults is.",
    ),
)

_MISSED_GAIN: tuple[Reason, ...] = (
    (
        lambda cell: "-cores-one-" in cell["name"],
        "input of the other ranks costs less than a third of the slow rank's fault, and on shared cores "
        "that counts as its side effect. The intervals of both fixes contain it.",
    ),
    _MISSED_COVERAGE[2],
    (
        _slow_noise,
        "the healthy step is estimated from peers in the same part of the run, and with noise of such a "
        "long correlation they are fast or slow together there.",
    ),
    (
        lambda cell: cell["ranks"] == 2,
        "the baseline is another run, and the difference of two runs' mean steps is an error of the "
        "prediction. The intervals contain it.",
    ),
)
