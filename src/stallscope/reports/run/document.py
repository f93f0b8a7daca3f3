"""The document on one run: the verdict, charts, stragglers, findings, figures and facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stallscope.analysis import Analysis
from stallscope.analysis.gains.baseline import BaselineMatch
from stallscope.analysis.ledger.entries import CauseEntry
from stallscope.charts.charts import TITLES, charts_of, waiting_part
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount
from stallscope.text.figures import communication
from stallscope.text.job import (
    epoch_figures,
    job_texts,
    job_total,
    ranks_and_hosts,
    steps_and_epochs,
)
from stallscope.text.step_figures import StepFigures
from stallscope.text.verdicts import basis

from ..document import (
    Bar,
    Block,
    Cell,
    Chip,
    Document,
    Findings,
    Fold,
    KeyFigures,
    Listing,
    Section,
    SectionsFor,
    Table,
    Text,
    charts_section,
    only,
    sections_for,
    sections_of,
)
from . import contents, tables
from .loader_tables import rates_table, stages_table
from .tables import cause_table, step_unit
from .verdict import verdict_section

# Longer tables are folded.
_LONG = 16
# A terminal has no room for more fixes.
_MOST_GAINS = 4
_MOST_WARNINGS = {"md": 10, "terminal": 5}


def document(analysis: Analysis) -> Document:
    """Build the document."""
    return Document(
        analysis.run.name,
        [*_sections(analysis)],
        "verdict",
        chips=[*_chips(analysis)],
        basis=basis(analysis),
    )


def _chips(analysis: Analysis) -> Iterator[Chip]:
    run = analysis.run
    if analysis.epoch_times:
        yield Chip(ranks_and_hosts(analysis))
        yield Chip(steps_and_epochs(analysis))
    else:
        yield Chip(counted(run.size, "rank"), after=f" on {counted(len(run.hosts), 'host')}")
        yield Chip(
            counted(analysis.steps, "step"), after=f" in {counted(analysis.epochs, 'epoch')}"
        )
    yield Chip(job_total(analysis), before="job ")
    throughput = contents.throughput(analysis)
    if throughput:
        yield Chip(throughput)
    if run.synthetic:
        yield Chip("synthetic data")
    if run.status != "completed":
        yield Chip("no end: running, or killed")
    if analysis.baseline:
        yield Chip(analysis.baseline.run.name, before="against ")
    if analysis.single:
        yield Chip(analysis.single.run.name, before="on one rank ")


def _sections(analysis: Analysis) -> Iterator[Section | SectionsFor]:
    yield verdict_section(analysis)
    yield sections_for("html", lambda: _errors(analysis))
    yield charts_section("Charts", lambda: charts_of(analysis))
    steps = (tables.epochs_table, tables.cause_table, tables.ledger_table)
    yield sections_for("md", lambda: sections_of(*(table(analysis) for table in steps)))
    yield sections_for("terminal", lambda: _step_in_short(analysis))
    yield from sections_of(tables.stragglers_table(analysis))
    yield sections_for("terminal", lambda: _ranks_that_matter(analysis))
    yield sections_for("md terminal", lambda: _gains(analysis))
    loader = (rates_table, stages_table)
    yield sections_for("md", lambda: sections_of(*(table(analysis) for table in loader)))
    if analysis.findings:
        yield Section("Findings", (Findings(analysis.findings),))
    yield sections_for("html md", lambda: _events(analysis))
    yield sections_for("html", lambda: [Section("Figures", [*_figures(analysis)])])
    yield sections_for("md", lambda: _context(analysis))
    yield sections_for("html", lambda: [Section("About the run", [*_about(analysis)])])
    yield sections_for("terminal", lambda: [_job(analysis)])
    yield sections_for("md", lambda: _warnings(analysis, "Warnings"))
    heading = counted(len(analysis.warnings), "warning")
    yield sections_for("terminal", lambda: _warnings(analysis, heading))


def _errors(analysis: Analysis) -> Iterator[Section]:
    for finding in analysis.findings:
        if finding.severity == "error":
            yield Section("Error", (Findings([finding]),), style="notice")


def _step_in_short(analysis: Analysis) -> Iterator[Section]:
    yield Section("", step_bars(analysis))
    figures = epoch_figures(analysis)
    if figures:
        yield Section("", (KeyFigures.of(figures),))
    yield from sections_of(tables.epochs_table(analysis))


def _ranks_that_matter(analysis: Analysis) -> list[Section]:
    title, ranks = contents.ranks_that_matter(analysis)
    if analysis.run.size == 1 or not ranks:
        return []
    return sections_of(tables.ranks_table(analysis, title, ranks))


def _gains(analysis: Analysis) -> Iterator[Section]:
    gains = tables.gains_table(analysis)
    short = tables.gains_table(analysis, most=_MOST_GAINS)
    if gains is not None and short is not None:
        extrapolated = tables.is_extrapolated(analysis)
        note = [Text(tables.EXTRAPOLATED, note=True)] if extrapolated else []
        # Without titles of columns the report fits one screen.
        untitled = replace(short, columns=("",) * len(short.columns))
        yield Section(gains.title, (only("md", gains), only("terminal", untitled, *note)))
    yield from sections_of(tables.baselines_table(analysis))


def _events(analysis: Analysis) -> Iterator[Section]:
    events = tables.events_table(analysis)
    if events is not None:
        yield Section(events.title, (only("html", _counted("Events", events)), only("md", events)))


def _counted(title: str, table: Table) -> Fold:
    """Fold a table with its number of rows; short ones are open."""
    rows = len(table.rows)
    return Fold(f"{title} ({rows:,})", (table,), is_open=rows <= _LONG)


def _figures(analysis: Analysis) -> Iterator[Block]:
    """Yield all tables of figures, folded."""
    if epoch_figures(analysis):
        yield KeyFigures.of(epoch_figures(analysis))
    epochs = tables.epochs_table(analysis)
    if epochs is not None:
        yield _counted(epochs.title, epochs)
    by_cause, ledger = tables.cause_table(analysis), tables.ledger_table(analysis)
    yield Fold(by_cause.title, (by_cause,), is_open=True)
    yield Fold(ledger.title, (ledger,))
    optional = (
        tables.baselines_table(analysis),
        rates_table(analysis),
        stages_table(analysis),
        tables.gains_table(analysis),
    )
    yield from (Fold(one.title, (one,), is_open=True) for one in optional if one is not None)
    ranks = tables.ranks_table(analysis)
    if ranks.rows:
        yield _counted(ranks.title, ranks)
    step = tables.step_table(analysis)
    if step is not None:
        yield Fold(step.title, (step,), is_open=analysis.ledger is None)
    job = tables.job_table(analysis)
    yield Fold(job.title, (job,))
    if analysis.match:
        yield _match("Run and baseline", analysis.match, contents.gap(analysis))
    single = contents.single_match(analysis)
    if single:
        yield _match("Run and run on one rank", single, "")


def _match(title: str, match: BaselineMatch, gap: str) -> Fold:
    figures = [("Throughput lost", gap)] if gap else []
    figures.append(("The same", ", ".join(match.same) or "nothing that is known"))
    figures += [("Differs", difference) for difference in match.differs]
    return Fold(title, (KeyFigures.of(figures),))


def _context(analysis: Analysis) -> Iterator[Section]:
    gap = contents.gap(analysis)
    facts = [*epoch_figures(analysis), *([("Throughput lost", gap)] if gap else [])]
    facts += contents.context(analysis)
    if facts:
        yield Section("What the figures rest on", (KeyFigures.of(facts),))


def _about(analysis: Analysis) -> Iterator[Fold]:
    warnings, settings = analysis.warnings, contents.settings(analysis)
    if warnings:
        yield Fold(
            f"Warnings ({len(warnings)})",
            (Listing(warnings, role="caveats"),),
            is_open=len(warnings) <= _LONG,
        )
    yield Fold("Facts", (KeyFigures.of(contents.facts(analysis)),))
    if settings:
        yield Fold(f"Settings ({len(settings)})", (KeyFigures.of(settings),))
    yield Fold("How to read this", (KeyFigures.of(contents.HOW_TO_READ),))


def _job(analysis: Analysis) -> Section:
    texts = job_texts(analysis)
    known = [
        f"{TITLES[name].lower()} {texts[name]}"
        for name, value in contents.job_parts(analysis)
        if value
    ]
    split = f": {', '.join(known)}" if known else "; what it went to was not measured"
    lines = [Text(f"{job_total(analysis)}{split}", lead="Job: ")]
    moved = communication(analysis)
    if moved:
        lines.append(Text(moved, lead="Communication: "))
    return Section("", lines)


def _warnings(analysis: Analysis, title: str) -> Iterator[Section]:
    if analysis.warnings:
        listing = Listing(analysis.warnings, role="caveats", most=_MOST_WARNINGS)
        yield Section(title, (listing,))


def step_bars(analysis: Analysis) -> Sequence[Table | Text]:
    """Return the step by cause as bars whose shaded end is waiting for slow ranks."""
    step, figures = analysis.step, StepFigures.of(analysis)
    if step is None or figures is None:
        mean = "" if step is None else f"; a step takes {amount(step.mean, 'ms', step.ci95)}"
        return [Text(f"Stages of the steps: not measured{mean}")]
    unit = step_unit(analysis)
    largest = max(1e-12, *(entry.ms for entry in analysis.by_cause))
    rows = [
        (title, _bar(entry, largest), f"{ms} {unit}", share, _difference(others))
        for entry, (title, ms, share, _, *others) in zip(
            analysis.by_cause, cause_table(analysis).rows, strict=False
        )
    ]
    columns = ("", "", "", "", "" if analysis.baseline is None else "difference")
    title = f"Step time: {amount(step.mean, 'ms', step.ci95)}"
    table = Table(title, columns, tuple(rows), words=frozenset({0, 1}))
    waiting = analysis.entry("imbalance")
    if waiting is None or analysis.run.size == 1:
        return [table]
    waits = figures.causes.amount(figures.waits.total, waiting.ci95_ms)
    return [table, Text(f"▒ waiting for slow ranks (imbalance): {waits}", note=True)]


def _bar(entry: CauseEntry, largest: float) -> Cell:
    parts = [(entry.name, entry.ms / largest)]
    return Cell("", bar=Bar(parts, shaded=waiting_part(entry) / largest))


def _difference(cells: Sequence[str]) -> str:
    """Return the difference to the baseline without its interval, for which there is no room."""
    return cells[1].partition(" ±")[0] if cells else ""
