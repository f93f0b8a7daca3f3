"""The document on one run: the verdict, charts, stragglers, findings, figures and facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stallscope.analysis import Analysis
from stallscope.analysis.gains.baseline import BaselineMatch
from stallscope.analysis.ledger.ledger import CauseEntry, waiting_part
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount
from stallscope.text.figure_words import communication, printed_figures, step_in_words
from stallscope.text.gain_words import overlap_sentence, probe_sentence
from stallscope.text.job_words import (
    epoch_figures,
    generation_sentence,
    job_texts,
    job_total,
    ranks_and_hosts,
    steps_and_epochs,
    throughput,
)
from stallscope.text.step_figures import StepFigures
from stallscope.text.verdicts import basis
from stallscope.text.vocabulary import TITLES

from ..document import (
    Cell,
    CellBar,
    Chip,
    Document,
    DocumentBlock,
    Figure,
    Findings,
    Fold,
    KeyFigures,
    Listing,
    Section,
    Table,
    Text,
    charts_section,
    sections_of,
)
from . import run_contents, run_tables
from .network_tables import (
    loaders_table,
    network_tables,
    probe_table,
    rates_table,
    stages_table,
    trials_table,
)
from .run_contents import verdict_section
from .step_tables import (
    baselines_table,
    cause_table,
    causes_table,
    ledger_table,
    step_table,
    step_unit,
)

# Longer tables are folded.
_LONG = 16
# More fixes do not fit a terminal.
_MOST_GAINS = 3
_MOST_GENERATIONS = 6
_MOST_WARNINGS = {"md": 10, "terminal": 5}


def document(analysis: Analysis, form: str) -> Document:
    """Build the document for a format."""
    sections = {"html": _page, "md": _markdown, "terminal": _summary}[form]
    return Document(
        analysis.run.name,
        [verdict_section(analysis, form), *sections(analysis)],
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
    rates = throughput(analysis)
    if rates:
        yield Chip(rates)
    if run.synthetic:
        yield Chip("synthetic data")
    if run.lacks_end:
        yield Chip("no end: running, or killed")
    if analysis.baseline:
        yield Chip(analysis.baseline.run.name, before="against ")
    if analysis.single:
        yield Chip(analysis.single.run.name, before="on one rank ")


def _page(analysis: Analysis) -> Iterator[Section]:
    """Yield charts, and all tables folded."""
    for finding in analysis.findings:
        if finding.severity == "error":
            yield Section("Error", (Findings([finding]),), style="notice")
    # Other formats have no charts.
    from stallscope.charts.charts import named_charts

    charts, by_chart = named_charts(analysis), _tables_by_chart(analysis)
    # The first chart is on the first screen; the verdict names the findings.
    drawn = (Figure.of(chart, *by_chart.pop(name, ())) for name, chart in charts.items())
    yield from charts_section("Charts", drawn)
    yield from _concerns(analysis, "html")
    yield from sections_of(
        run_tables.generations_table(analysis),
        run_tables.stragglers_table(analysis),
        causes_table(analysis),
    )
    yield from _notes(analysis)
    events = run_tables.events_table(analysis)
    if events is not None:
        yield Section(events.title, (_counted("Events", events),))
    figures = [*_figures(analysis, [table for group in by_chart.values() for table in group])]
    if figures:
        yield Section("Figures", figures)
    yield Section("About the run", [*_about(analysis)])


def _markdown(analysis: Analysis) -> Iterator[Section]:
    """Yield the tables that reviewers read."""
    yield from _concerns(analysis, "md")
    yield from sections_of(
        run_tables.epochs_table(analysis),
        run_tables.printed_ranks_table(analysis),
        cause_table(analysis) if analysis.printed is None else None,
        ledger_table(analysis) if analysis.printed is None else None,
        run_tables.stragglers_table(analysis),
        run_tables.places_table(analysis),
        causes_table(analysis),
        run_tables.gains_table(analysis),
        baselines_table(analysis),
        probe_table(analysis),
        loaders_table(analysis),
        rates_table(analysis),
        stages_table(analysis),
        trials_table(analysis),
        *network_tables(analysis),
        run_tables.generations_table(analysis),
        run_tables.job_table(analysis) if analysis.goodput is not None else None,
    )
    yield from _notes(analysis)
    yield from sections_of(run_tables.events_table(analysis))
    yield from _context(analysis)


def _summary(analysis: Analysis) -> Iterator[Section]:
    """Yield the sections that fit a terminal."""
    yield from _concerns(analysis, "terminal")
    yield Section("", step_bars(analysis))
    figures = _figures_of_lines(analysis)
    if figures:
        yield Section("", (KeyFigures.of(figures),))
    yield from sections_of(run_tables.epochs_table(analysis), run_tables.stragglers_table(analysis))
    yield from _generations(analysis)
    title, ranks = run_contents.ranks_that_matter(analysis)
    if analysis.run.size > 1 and ranks:
        yield from sections_of(run_tables.ranks_table(analysis, title, ranks))
    gains = run_tables.gains_table(analysis, most=_MOST_GAINS)
    if gains is not None:
        extrapolated = run_tables.EXTRAPOLATED if run_tables.is_extrapolated(analysis) else ""
        notes = [
            Text(note, note=True)
            for note in (probe_sentence(analysis), overlap_sentence(analysis), extrapolated)
            if note
        ]
        # Without titles of columns the report fits one screen.
        yield Section(gains.title, (replace(gains, columns=("",) * len(gains.columns)), *notes))
    yield from sections_of(baselines_table(analysis))
    yield from _notes(analysis)
    yield _job(analysis)


def _generations(analysis: Analysis) -> list[Section]:
    """List the generations if the ranks changed."""
    generations = analysis.generations
    if len(generations) < 2:
        return []
    listing = Listing(
        [*map(generation_sentence, generations)], most={"terminal": _MOST_GENERATIONS}
    )
    return [Section("Generations", (listing,))]


def _concerns(analysis: Analysis, form: str) -> Iterator[Section]:
    """Yield serious findings and warnings, which come before the figures."""
    serious = [finding for finding in analysis.further_findings if finding.severity != "info"]
    if serious:
        yield Section("Findings", (Findings(serious),), key="findings")
    if analysis.warnings:
        listing = Listing(analysis.warnings, role="caveats", most=_MOST_WARNINGS)
        # Formats without folds show the first ones only.
        many = len(analysis.warnings) > _LONG
        fold = Fold(f"All {len(analysis.warnings):,}", (listing,))
        blocks = (fold if form == "html" and many else listing,)
        yield Section("Warnings", blocks, key="warnings")


def _notes(analysis: Analysis) -> list[Section]:
    notes = [finding for finding in analysis.further_findings if finding.severity == "info"]
    return [Section("Notes", (Findings(notes),))] if notes else []


def _counted(title: str, table: Table) -> Fold:
    """Fold a table with its number of rows; short ones are open."""
    rows = len(table.rows)
    return Fold(f"{title} ({rows:,})", (table,), is_open=rows <= _LONG)


def _tables_by_chart(analysis: Analysis) -> dict[str, list[Table]]:
    """Return the tables of figures by the name of the chart that shows them."""
    steps = analysis.printed is None
    tables_of: dict[str, Sequence[Table | None]] = {
        "by_cause": [cause_table(analysis), ledger_table(analysis)] if steps else [],
        "gains": [run_tables.gains_table(analysis)],
        "input_probe": [probe_table(analysis)],
        "baseline": [baselines_table(analysis)],
        "ranks": [run_tables.ranks_table(analysis), run_tables.places_table(analysis)],
        "steps": [step_table(analysis)],
        "printed_ranks": [run_tables.printed_ranks_table(analysis)],
        "network": network_tables(analysis),
        "job": [run_tables.job_table(analysis)],
    }
    return {
        name: [table for table in group if table is not None and table.rows]
        for name, group in tables_of.items()
    }


def _figures(analysis: Analysis, uncharted: Sequence[Table]) -> Iterator[DocumentBlock]:
    """Yield all figures that no chart shows, folded."""
    figures = _figures_of_lines(analysis)
    if figures:
        yield KeyFigures.of(figures)
    optional = (
        run_tables.epochs_table(analysis),
        *uncharted,
        loaders_table(analysis),
        rates_table(analysis),
        stages_table(analysis),
        trials_table(analysis),
    )
    yield from (_counted(table.title, table) for table in optional if table is not None)
    if analysis.match:
        yield _match("Run and baseline", analysis.match, run_contents.gap(analysis))
    single = run_contents.single_match(analysis)
    if single:
        yield _match("Run and run on one rank", single, "")


def _figures_of_lines(analysis: Analysis) -> list[tuple[str, str]]:
    """Return the figures of logs without recorded steps."""
    return [*printed_figures(analysis.printed), *epoch_figures(analysis)]


def _match(title: str, match: BaselineMatch, gap: str) -> Fold:
    figures = [("Throughput lost", gap)] if gap else []
    figures.append(("The same", ", ".join(match.same) or "nothing that is known"))
    figures += [("Differs", difference) for difference in match.reasons]
    return Fold(title, (KeyFigures.of(figures),))


def _context(analysis: Analysis) -> Iterator[Section]:
    gap = run_contents.gap(analysis)
    facts = [*_figures_of_lines(analysis), *([("Throughput lost", gap)] if gap else [])]
    facts += run_contents.context(analysis)
    if facts:
        yield Section("What the figures rest on", (KeyFigures.of(facts),))


def _about(analysis: Analysis) -> Iterator[Fold]:
    settings = run_contents.settings(analysis)
    yield Fold("Facts", (KeyFigures.of(run_contents.facts(analysis)),))
    if settings:
        yield Fold(f"Settings ({len(settings)})", (KeyFigures.of(settings),))
    yield Fold("How to read this", (KeyFigures.of(run_contents.HOW_TO_READ),))


def _job(analysis: Analysis) -> Section:
    texts = job_texts(analysis)
    known = [
        f"{TITLES[name].lower()} {texts[name]}"
        for name, value in run_contents.job_parts(analysis)
        if value
    ]
    split = f": {', '.join(known)}" if known else "; its parts were not measured"
    lines = [Text(f"{job_total(analysis)}{split}", lead="Job: ")]
    moved = communication(analysis)
    if moved:
        lines.append(Text(moved, lead="Communication: "))
    if run_contents.network(analysis):
        lines.append(Text(run_contents.network(analysis), lead="Network: "))
    return Section("", lines)


def step_bars(analysis: Analysis) -> Sequence[Table | Text]:
    """Return the step by cause as bars; the shaded end is waiting for slow ranks."""
    step, figures = analysis.step, StepFigures.of(analysis)
    if step is None or figures is None:
        mean = "" if step is None else f"; a step takes {step_in_words(step)}"
        timers = analysis.printed is not None and analysis.printed.stages is not None
        return [
            Text(f"Stages of the steps: {'by printed timers' if timers else 'not measured'}{mean}")
        ]
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
    return [table, Text(f"▒ waiting for slow ranks: {waits}", note=True)]


def _bar(entry: CauseEntry, largest: float) -> Cell:
    parts = [(entry.name, entry.ms / largest)]
    return Cell("", bar=CellBar(parts, shaded=waiting_part(entry) / largest))


def _difference(cells: Sequence[str]) -> str:
    """Return the difference to the baseline without its interval, which does not fit."""
    return cells[1].partition(" ±")[0] if cells else ""
