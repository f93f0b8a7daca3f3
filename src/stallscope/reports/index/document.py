"""The document on many runs: a table ranked by lost time, trends, and the runs without a report."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.charts.charts import TITLES
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import NOT_MEASURED, amount, percent

from ..document import (
    Cell,
    CellBar,
    Document,
    Listing,
    Section,
    Table,
    Text,
    charts_section,
    sections_of,
)
from .index import NOTE, Index, gain, lost, ranks, shares, throughput
from .line import Line
from .trends import trends

# Job summaries have a limit of size.
_MOST_ROWS = 200
_MOST_FAILED = 50
_FAILED = "failed"

_COLUMNS = (
    "Run",
    "Verdict",
    "Time lost",
    "Fix",
    "Gain of the fix",
    "Step time by cause",
    "Step",
    "Throughput",
    "Ranks",
    "Started, UTC",
)
_WORDS = ("Run", "Verdict", "Fix", "Step time by cause", "Started, UTC")


def document(index: Index, form: str) -> Document:
    """Build the document for a format."""
    return Document(index.title, [*_sections(index, form)], "runs")


def _sections(index: Index, form: str) -> Iterator[Section]:
    failed = f"{counted(len(index.failed), 'run')} could not be reported."
    link = [Text(failed, leads_to=_FAILED)] if index.failed and form == "html" else []
    yield Section(index.headline, link, style="headline")
    yield from sections_of(_table(index))
    if form == "html":
        yield from charts_section("Trends", trends(index.lines))
    if index.failed:
        failures = Listing(index.failed, most={"md": _MOST_FAILED})
        yield Section("Not reported", (failures,), style="alert", key=_FAILED)


def _table(index: Index) -> Table:
    return Table(
        "Runs by time lost",
        _COLUMNS,
        tuple(_row(line, index) for line in index.ranked),
        words=frozenset(map(_COLUMNS.index, _WORDS)),
        note=NOTE,
        without={
            "html": [_COLUMNS.index("Fix")],
            "md": [_COLUMNS.index("Step time by cause"), _COLUMNS.index("Step")],
        },
        most={"md": _MOST_ROWS},
        sorted_by=_COLUMNS.index("Time lost"),
        legend=[(name, TITLES[name]) for name in CAUSES],
    )


def _row(line: Line, index: Index) -> tuple[Cell, ...]:
    pages = {"html": index.page(line, ".html"), "md": index.page(line, ".md")}
    fix = line.fix or ""
    return (
        Cell(line.name, line.name, links={name: page for name, page in pages.items() if page}),
        Cell(line.said, line.said),
        Cell(lost(line, index.scale), _last_if_unknown(line.lost_h)),
        Cell(fix, fix),
        Cell(gain(line), _last_if_unknown(line.speedup), below=fix),
        _shares(line),
        Cell(amount(line.step_ms, "ms"), _last_if_unknown(line.step_ms)),
        Cell(throughput(line), _last_if_unknown(line.samples_per_second)),
        Cell(ranks(line), line.ranks),
        Cell(line.began or "not known", line.started_at or ""),
    )


def _last_if_unknown(value: float | None) -> float:
    return -1.0 if value is None else value


def _shares(line: Line) -> Cell:
    """Return a small bar of the causes, and the name of the largest."""
    found = shares(line)
    if not found:
        return Cell(NOT_MEASURED)
    largest = max(found, key=lambda name: found[name])
    text = ", ".join(f"{TITLES[name].lower()} {percent(share)}" for name, share in found.items())
    return Cell(
        f"{percent(found[largest])} {TITLES[largest].lower()}",
        largest,
        bar=CellBar([*found.items()], text=text),
    )
