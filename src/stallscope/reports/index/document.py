"""The document on many runs: a table ranked by lost time, trends, and the runs without a report."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.analysis.gains.what_if import WORTH_MENTIONING
from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Scale,
    amount,
    faster_between,
    faster_in_short,
    percent,
    plus_minus,
    rate,
)
from stallscope.text.gains import NO_GAIN
from stallscope.text.titles import TITLES

from ..document import (
    NOTHING,
    Cell,
    CellBar,
    Document,
    Figure,
    Listing,
    Section,
    Table,
    Text,
    charts_section,
    sections_of,
)
from .index import Index, IndexLine
from .trends import trends

# Job summaries are limited in size.
_MOST_ROWS = 200
_MOST_FAILED = 50
_FAILED = "failed"
# Below the table of runs.
_NOTE = (
    "Time lost: what the fix saves per step × steps × ranks, as time of one rank. "
    "The fix is the verdict's, or the one that gains most if the verdict names none. "
    "≤ marks a bound: allreduce as if it cost nothing, or a run without a fault."
)
# Columns that a format has no space for, or shows below another figure.
_WITHOUT = {"html": ("Fix", "95% interval"), "md": ("Step time by cause", "Step")}
_WORDS = ("Run", "Verdict", "Fix", "Step time by cause", "Started, UTC")


def document(index: Index, form: str) -> Document:
    """Build the document for a format."""
    return Document(index.title, [*_sections(index, form)], "runs")


def _sections(index: Index, form: str) -> Iterator[Section]:
    failed = f"{counted(len(index.failed), 'run')} could not be reported."
    link = [Text(failed, leads_to=_FAILED)] if index.failed and form == "html" else []
    yield Section(index.headline, link, style="headline")
    yield from sections_of(_table(index, form))
    if form == "html":
        yield from charts_section("Trends", map(Figure.of, trends(index.lines)))
    if index.failed:
        failures = Listing(index.failed, most={"md": _MOST_FAILED})
        yield Section("Not reported", (failures,), style="alert", key=_FAILED)


def _table(index: Index, form: str) -> Table:
    lines, scale = index.ranked, index.scale
    columns = {
        "Run": [Cell(line.name, line.name, link=index.page(line, f".{form}")) for line in lines],
        "Verdict": [Cell(line.said, line.said) for line in lines],
        "Time lost": [Cell(_lost(line, scale), _last_if_unknown(line.lost_h)) for line in lines],
        "Fix": [Cell(line.fix or "", line.fix or "") for line in lines],
        "Gain of the fix": [
            Cell(_gain(line), _last_if_unknown(line.speedup), below=_below_gain(line))
            for line in lines
        ],
        "95% interval": map(_interval, lines),
        "Step time by cause": map(_shares, lines),
        "Step": [
            Cell(amount(line.step_ms, "ms"), _last_if_unknown(line.step_ms)) for line in lines
        ],
        "Throughput": [
            Cell(rate(line.samples_per_second), _last_if_unknown(line.samples_per_second))
            for line in lines
        ],
        "Ranks": [
            Cell(f"{line.ranks:,}{', synthetic' if line.synthetic else ''}", line.ranks)
            for line in lines
        ],
        "Started, UTC": [Cell(line.began or "not known", line.started_at or "") for line in lines],
    }
    for title in _WITHOUT.get(form, ()):
        del columns[title]
    at = list(columns).index
    return Table.of(
        "Runs by time lost",
        columns,
        words=frozenset(at(title) for title in _WORDS if title in columns),
        note=_NOTE,
        most={"md": _MOST_ROWS},
        sorted_by=at("Time lost"),
        legend=[(name, TITLES[name]) for name in CAUSES],
    )


def _lost(line: IndexLine, scale: Scale) -> str:
    """Return the lost time: 12.3 ± 0.4 h, or that it was not measured."""
    if line.lost_h is None:
        return NOT_MEASURED
    most = "≤ " if line.bound else ""
    low, high = line.lost_ci95_h or (None, None)
    ends = None if low is None or high is None else (low * scale.factor, high * scale.factor)
    return f"{most}{plus_minus(line.lost_h * scale.factor, ends)} {scale.unit}"


def _gain(line: IndexLine) -> str:
    """Return the gain of the fix: 1.23×, or at most 1.23× if it is a bound."""
    if line.speedup is None:
        return NOTHING
    if line.speedup < WORTH_MENTIONING:
        return NO_GAIN
    most = "at most " if line.bound else ""
    return f"{most}{faster_in_short(line.speedup, line.speedup_ci95)}"


def _interval(line: IndexLine) -> str:
    ends, gained = line.speedup_ci95, line.speedup or 0.0
    return "" if ends is None or gained < WORTH_MENTIONING else faster_between(gained, ends)


def _below_gain(line: IndexLine) -> str:
    return ": ".join(filter(None, (_interval(line), line.fix)))


def _last_if_unknown(value: float | None) -> float:
    return -1.0 if value is None else value


def _shares(line: IndexLine) -> Cell:
    """Return a small bar of the causes, and the name of the largest."""
    whole = sum(line.by_cause_ms.values())
    if not whole:
        return Cell(NOT_MEASURED)
    shares = {name: ms / whole for name, ms in line.by_cause_ms.items()}
    largest = max(shares, key=lambda name: shares[name])
    text = ", ".join(f"{TITLES[name].lower()} {percent(share)}" for name, share in shares.items())
    return Cell(
        f"{percent(shares[largest])} {TITLES[largest].lower()}",
        largest,
        bar=CellBar([*shares.items()], text=text),
    )
