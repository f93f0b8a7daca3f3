"""Tables of the scorecard's page, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scipy import stats

Cell = dict[str, Any]

NOTHING = "–"
#: Figures that have intervals.
LEDGER = ("step", "input", "compute", "other", "imbalance", "allreduce")
FIXES = ("fix input", "fix other", "fix imbalance", "fix rank:1", "fix allreduce")
#: Noise, unless stated otherwise.
PHI = 0.5
#: The ranks that have a fault.
WHO = {"one": "one rank", "all": "all ranks", "rotating": "another in every step"}


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
