"""Write docs/scorecard/simulated.md: how often the analysis is right on simulated runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from page_tables import (
    CV,
    MISSES,
    NOTHING,
    PERCENT,
    STEPS,
    WHO,
    Cell,
    interval,
    misses,
    ms,
    percent,
    ratio,
    run_share,
    table,
)
from simulated_bars import FIXES, LEDGER, PHI, bars


def page(simulated: dict[str, Any]) -> str:
    """Return the whole page from the results of simulated.py."""
    power = [c for c in simulated.get("power", ()) if (c["steps"], c["phi"]) == (STEPS, PHI)]
    sections = [
        _SIMULATED.format(runs=simulated["runs"]),
        _comparison(simulated, power),
        _misses(simulated),
        _power(power),
        _lengths(simulated.get("power", ())),
        _clean(simulated.get("clean", ())),
        _patterns(simulated.get("pattern", ())),
        _coverage(simulated.get("coverage", ())),
        _robustness(simulated.get("robustness", ())),
    ]
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def _comparison(simulated: dict[str, Any], power: Sequence[Cell]) -> str:
    within = [cell for cell in power if cell["percent"] >= PERCENT and cell["cv"] <= CV]
    return _COMPARISON.format(
        percent=PERCENT,
        steps=STEPS,
        cv=CV * 100,
        summary=summary(within, simulated.get("clean", ())),
    )


def _misses(simulated: dict[str, Any]) -> str:
    listed = misses(bars(simulated))
    return f"{MISSES}\n\n{listed}" if listed else ""


def _power(power: Sequence[Cell]) -> str:
    if not power:
        return ""
    kinds = {
        "one": [cell for cell in power if cell["who"] == "one"],
        "all": [cell for cell in power if cell["who"] == "all"],
        "compute": [c for c in power if (c["who"], c["stage"]) == ("rotating", "compute")],
        "rest": [c for c in power if c["who"] == "rotating" and c["stage"] != "compute"],
    }
    parts = [_POWER.strip()]
    for name, cells in kinds.items():
        parts += [_POWER_KINDS[name], power_table(cells)]
    innocent = percent(run_share(power, "innocent_named"))
    return "\n\n".join(
        [
            *parts,
            f"A healthy rank was named in {innocent} of these runs.",
            _SIZES.format(cv=CV * 100),
            size_table([cell for cell in power if cell["cv"] <= CV]),
            _VERDICTS,
            verdict_table(power),
        ]
    )


def _lengths(cells: Sequence[Cell]) -> str:
    alike = [
        cell
        for cell in cells
        if (cell["ranks"], cell["cv"]) == (8, 0.1)
        and cell["percent"] in (10, 30)
        and cell["stage"] in ("input", "compute")
    ]
    return f"{_LENGTHS}\n{length_table(alike)}" if alike else ""


def _clean(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    rotating = percent(run_share(cells, "rotating_found"))
    return (
        f"{_CLEAN}\n{clean_table(cells)}\n\n"
        f"Lateness that varies from step to step, on no rank in particular, was found in {rotating} "
        "of them."
    )


def _patterns(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    page = f"{_PATTERNS}\n{pattern_table(cells)}"
    right = run_share(cells, "hidden_right")
    return page if right is None else f"{page}\n\n{_HIDDEN.format(right=percent(right))}"


def _coverage(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    parts = [
        _COVERAGE,
        coverage_table(cells, LEDGER, "covered"),
        _GAINS,
        coverage_table(cells, FIXES, "covered"),
        _GAIN_ERRORS,
        coverage_table(cells, FIXES, "error"),
    ]
    return "\n\n".join(part.strip() for part in parts)


def _robustness(cells: Sequence[Cell]) -> str:
    return _ROBUSTNESS.format(table=robustness_table(cells)) if cells else ""


# -- tables --------------------------------------------------------------------------------------


def summary(power: Sequence[Cell], clean: Sequence[Cell]) -> str:
    """Compare ours with the two naive readings."""
    titles = {
        "one": "fault on one rank: cause and rank right",
        "all": "fault on all ranks: cause right, no rank named",
        "rotating": "fault on another rank in every step: cause right, no rank named",
    }
    rows = []
    for who, title in titles.items():
        group = [cell for cell in power if cell["who"] == who]
        shares = [run_share(group, name) for name in ("right", "own_log_right", "latest_right")]
        rows.append((title, _count(group), *map(percent, shares)))
    named = percent(run_share(clean, "innocent_named"))
    latest = run_share(clean, "latest_rank_right")
    by_latest = percent(None if latest is None else 1 - latest)
    rows.append(("no fault: a rank named", _count(clean), named, "names no rank", by_latest))
    return table(("", "runs", "Stallscope", "own log, cause only", "latest arrival"), rows)


def _count(cells: Iterable[Cell]) -> str:
    return f"{sum(cell['runs'] for cell in cells):,}"


def _noise(cv: float) -> str:
    return f"noise {cv * 100:g} %"


def power_table(cells: Sequence[Cell], figure: str = "right") -> str:
    """Tabulate ranks and noise down, size across."""
    sizes = sorted({cell["percent"] for cell in cells})
    keys = sorted({(cell["ranks"], cell["cv"]) for cell in cells})
    rows = []
    for ranks, cv in keys:
        group = [cell for cell in cells if (cell["ranks"], cell["cv"]) == (ranks, cv)]
        shares = [
            percent(run_share([c for c in group if c["percent"] == size], figure)) for size in sizes
        ]
        rows.append((f"{ranks:,} ranks, {_noise(cv)}", *shares))
    return table(("", *[f"{size:g} %" for size in sizes]), rows)


def size_table(cells: Sequence[Cell]) -> str:
    """Tabulate sizes found, as fractions of the injected ones: the range of the cells' medians."""
    sizes = sorted({cell["percent"] for cell in cells})
    rows = []
    for who, stage in dict.fromkeys((cell["who"], cell["stage"]) for cell in cells):
        group = [cell for cell in cells if (cell["who"], cell["stage"]) == (who, stage)]
        rows.append(
            (
                f"{WHO[who]}, {stage}",
                *[_range(c.get("recovered") for c in group if c["percent"] == s) for s in sizes],
            )
        )
    return table(("", *[f"{size:g} %" for size in sizes]), rows)


def _range(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING
    low, high = f"{min(known):.2f}", f"{max(known):.2f}"
    return low if low == high else f"{low}–{high}"


def verdict_table(cells: Sequence[Cell]) -> str:
    """Tabulate how often the verdict names the fault, where it costs most."""
    due = [cell for cell in cells if "verdict_right" in cell]
    rows = []
    for who, title in WHO.items():
        group = [cell for cell in due if cell["who"] == who]
        by_cv = [
            percent(run_share([c for c in group if c["cv"] == cv], "verdict_right"))
            for cv in sorted({cell["cv"] for cell in due})
        ]
        rows.append((title, *by_cv))
    return table(("", *map(_noise, sorted({cell["cv"] for cell in due}))), rows)


def length_table(cells: Sequence[Cell]) -> str:
    """Tabulate fewer and more steps, and noise with a longer autocorrelation time."""
    keys = sorted({(cell["steps"], cell["phi"]) for cell in cells})
    columns = sorted({(cell["who"], cell["percent"]) for cell in cells})
    rows = []
    for steps, phi in keys:
        group = [cell for cell in cells if (cell["steps"], cell["phi"]) == (steps, phi)]
        rows.append(
            (
                f"{steps:,} steps, φ = {phi:g}",
                *[
                    percent(
                        run_share([c for c in group if (c["who"], c["percent"]) == key], "right")
                    )
                    for key in columns
                ],
            )
        )
    return table(("", *[f"{WHO[who]}, {size:g} %" for who, size in columns]), rows)


def clean_table(cells: Sequence[Cell]) -> str:
    """Tabulate false alarms."""
    rows = []
    for cell in cells:
        alarms = round(cell["innocent_named"] * cell["runs"])
        rows.append(
            (
                f"{cell['ranks']:,} ranks, {_noise(cell['cv'])}, {cell['about']}",
                f"{cell['runs']:,}",
                percent(cell["innocent_named"]),
                interval(alarms, cell["runs"]),
                percent(1 - cell["latest_rank_right"]),
            )
        )
    return table(("", "runs", "a rank named", "95 % interval", "by latest arrival"), rows)


def pattern_table(cells: Sequence[Cell]) -> str:
    rows = [
        (
            f"{cell['ranks']:,} ranks, {_noise(cell['cv'])}: {cell['about']}",
            str(cell["runs"]),
            percent(cell["rank_right"]),
            percent(cell["cause_right"]),
            percent(cell["right"]),
            percent(cell["innocent_named"]),
            ratio(cell.get("recovered")),
        )
        for cell in cells
    ]
    head = (
        "",
        "runs",
        "ranks right",
        "and stages",
        "and pattern",
        "another rank named",
        "size, found/true",
    )
    return table(head, rows)


def robustness_table(cells: Sequence[Cell]) -> str:
    rows = [
        (
            f"{cell['ranks']:,} ranks: {cell['about']}",
            "no fault" if cell["who"] == "none" else f"one rank, {cell['percent']:g} %",
            str(cell["runs"]),
            percent(cell["right"]),
            percent(cell["innocent_named"]),
            ratio(cell.get("recovered")),
            ms(cell.get("allreduce_error_ms")),
            percent(cell.get("critical_right")),
        )
        for cell in cells
    ]
    head = (
        "",
        "fault",
        "runs",
        "right",
        "another rank named",
        "size, found/true",
        "allreduce off by, ms",
        "critical rank right",
    )
    return table(head, rows, texts=2)


def coverage_table(cells: Sequence[Cell], names: Sequence[str], figure: str) -> str:
    """Tabulate one figure of all intervals: a row per configuration."""
    rows = []
    for cell in cells:
        values = [cell["figures"].get(name, {}) for name in names]
        shown = [_covered(value) if figure == "covered" else _error(value) for value in values]
        noise = f"{_noise(cell['cv'])}, φ = {cell['phi']:g}"
        rows.append((f"{cell['ranks']:,} ranks, {noise}, {cell['about']}", *shown))
    return table(("", *[name.removeprefix("fix ") for name in names]), rows)


def _covered(value: Cell) -> str:
    if not value:
        return NOTHING
    without = value["without"]
    missing = f" ({percent(without, 0)} without)" if without >= 0.005 else ""
    return f"{percent(value.get('covered'))}{missing}"


def _error(value: Cell) -> str:
    if not value:
        return NOTHING
    return f"{percent(value['error_median'], 2)} / {percent(value['error_p95'], 2)}"


# -- sentences; they contain no results ----------------------------------------------------------

_SIMULATED = """\
# Scorecard: simulated runs

This page shows how often the analysis is right on {runs:,} simulated runs with faults of known size.
The [summary](../scorecard.md) has the targets.

*Noise* is the coefficient of variation of every stage from step to step; each step's noise is
correlated with that of the step before (φ = .5 unless stated otherwise). A *cell* is one kind of run,
simulated many times. A target is met if every cell meets it. For false alarms and intervals, a cell
fails if it misses the target by more than chance (1 %).
"""

_COMPARISON = """\
## Comparison with separate logs

Faults of {percent} % of the step or more, {steps} steps, noise up to {cv:g} %. The same runs, read
without joining the ranks' logs:

{summary}

- **Own log**: each rank's log is compared with the same rank's baseline; the stage that has grown
  most is the cause. In the log of a rank that waits for another, waiting looks like a slow network. So
  only the slow rank's log is right, and nothing shows which log that is.
- **Latest arrival**: the rank that is last most often, in more than twice its share of steps, is the
  straggler. But every step of a healthy run has a last rank, too, and a fault on all ranks has no
  straggler.

Both readings are made for this scorecard, from the same aligned logs and baselines as the analysis. A
careful reader of single logs does better.
"""

_POWER = """\
## Detection by size, noise and ranks

The share of runs with cause and rank right, by size of the fault in % of the clean step. An answer is
right in these cases:

- One rank: exactly that rank is named, with its stage.
- All ranks: no rank is named, and the injected stage exceeds its baseline most, by more than chance.
- Another rank in every step, drawn at random: no rank is named, and that stage is reported as varying
  from step to step.
"""

_POWER_KINDS = {
    "one": "**One rank**, all stages",
    "all": "**All ranks**, all stages",
    "compute": "**Another rank in every step**, compute, which is 150 of 180 ms and as noisy",
    "rest": "**Another rank in every step**, input and other, which are 4 and 6 ms",
}

_SIZES = "**Size**, found / injected: the range of the cells' medians, noise up to {cv:g} %"

_VERDICTS = """\
**Verdict**: how often it names the fault, if the fault costs at least 1.25 times as much as exposed
allreduce (20 ms). For smaller faults another verdict, or `balanced`, is right."""

_LENGTHS = """\
## Length of the run, and correlated noise

8 ranks, noise 10 %, faults in input and compute. φ is the correlation of a step's noise with that of
the step before: the autocorrelation time is 3 steps at .5 and 19 steps at .9.
"""

_CLEAN = """\
## Clean runs

No rank should be named.
"""

_PATTERNS = """\
## Bursts, ramps, hosts, two at once, uneven work

*Ranks right*: exactly the ranks and hosts that were made slow are named. The next columns also require
their stages and their pattern.
"""

_HIDDEN = """\
A slow rank hides behind a slower rank if it is hardly ever last: in under 2 % of the steps. The analysis
was right about that in {right} of the runs with two slow ranks.
"""

_COVERAGE = """\
## Coverage of intervals

The share of runs whose 95 % interval contains the job's mean step. *Without*: runs without an
interval, because they have too few independent steps.
"""

_GAINS = """\
## Predicted gains in simulated runs

The truth is the same job without the fault, simulated again from the same random numbers. The bound
for allreduce is compared with the true transfer. Coverage of the interval:
"""

_GAIN_ERRORS = """\
Errors of gains, in % of step time: median / 95th percentile of runs.
"""

_ROBUSTNESS = """\
## Bad clocks, lost rows, uneven rings

Noise 5 %. *Right*: no rank named without a fault, cause and rank right with one. *Off by*: mean
error of exposed allreduce.

{table}

Allreduce comes out too large in two cases. Skew of a ring between hosts cannot be told from an
offset of their clocks. Where the slow rank's rows are missing, waiting for it cannot be told from the
transfer.
"""
