"""The summary that fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.entries import CauseEntry
from stallscope.charts.charts import TITLES, waiting_part
from stallscope.charts.palette import COLOURS
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import NOT_MEASURED, amount, percent
from stallscope.formatting.plain import plain
from stallscope.text.epochs import epoch_figures, job_total
from stallscope.text.figures import communication
from stallscope.text.fixes import how_sure, saving, speedup, speedup_interval
from stallscope.text.gains import answers, gains, main_gain
from stallscope.text.job_figures import job_texts
from stallscope.text.step_figures import StepFigures
from stallscope.text.verdicts import badge, basis, headline

from .contents import advice, job_parts, ranks_that_matter
from .tables import (
    EXTRAPOLATED,
    baselines_table,
    cause_table,
    epochs_table,
    rank_cells,
    step_unit,
    stragglers_table,
)
from .tables import Table as Words

_BAR = 22
_WAITING = "▒"
_MOST_GAINS = 4
_MOST_STRAGGLERS = 5
_MOST_EPOCHS = 10
_MOST_WARNINGS = 5
_SEVERITIES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def summary(analysis: Analysis) -> RenderableType:
    """Verdict, ledger, who makes the others wait, ranks that matter, gains, baselines and the rest.

    To be printed by a ``rich`` console at least 80 columns wide.
    """
    sections = (
        _verdict(analysis),
        _ledger(analysis),
        _epochs(analysis),
        _drawn(stragglers_table(analysis), _MOST_STRAGGLERS),
        _ranks(analysis),
        _gains(analysis),
        _drawn(baselines_table(analysis)),
        _findings(analysis),
        _job(analysis),
        _warnings(analysis),
    )
    shown = [section for section in sections if section is not None]
    spaced: list[RenderableType] = []
    for section in shown:
        spaced += [section, Text()]
    return Group(*spaced)


def _verdict(analysis: Analysis) -> RenderableType:
    bottleneck = analysis.bottleneck
    colour = COLOURS[bottleneck.kind].light if bottleneck.kind in COLOURS else "default"
    lines: list[RenderableType] = [
        Text(plain(headline(bottleneck, analysis.stragglers)), style="bold"),
        Text(plain(bottleneck.evidence)),
        Text(),
    ]
    gain = main_gain(analysis)
    if gain is not None:
        lines.append(
            Text.assemble(
                f"{plain(gain.title)}, steps would be ",
                (f"{speedup(gain.what_if)} as fast", "bold"),
                f" ({how_sure(gain.what_if)}), saving {saving(gain.what_if, analysis)}.",
            )
        )
    steps = Table.grid(padding=(0, 1, 0, 0))
    for step in advice(analysis):
        steps.add_row("→", Text(plain(step)))
    lines += [steps, Text(f"From {basis(analysis)}.", style="dim")]
    title = Text(_clipped(f"{analysis.run.name}: {badge(bottleneck)}", 70))
    return Panel(
        Group(*lines), title=title, title_align="left", border_style=colour, box=box.ROUNDED
    )


def _ledger(analysis: Analysis) -> RenderableType:
    step, figures = analysis.step, StepFigures.of(analysis)
    if step is None or figures is None:
        mean = "" if step is None else f"; a step takes {amount(step.mean, 'ms', step.ci95)}"
        return Text(f"Stages of the steps: not measured{mean}")
    unit = step_unit(analysis)
    table = _grid(f"Step time: {amount(step.mean, 'ms', step.ci95)}")
    table.add_column(no_wrap=True)
    table.add_column(width=_BAR)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    if analysis.baseline is not None:
        table.add_row("", "", "", "", "difference", style="dim")
    largest = max(entry.ms for entry in analysis.by_cause)
    rows = cause_table(analysis).rows
    for entry, (title, ms, share, _, *others) in zip(analysis.by_cause, rows, strict=False):
        table.add_row(title, _bar(entry, largest), f"{ms} {unit}", share, *_excess(others))
    waiting = analysis.entry("imbalance")
    if waiting is None or analysis.run.size == 1:
        return table
    waits = figures.causes.amount(figures.waits.total, waiting.ci95_ms)
    return Group(
        table, Text(f"{_WAITING} waiting for slow ranks (imbalance): {waits}", style="dim")
    )


def _excess(cells: Sequence[str]) -> list[str]:
    """The difference to the baseline without its interval, for which there is no room."""
    return [cells[1].partition(" ±")[0]] if cells else [""]


def _bar(entry: CauseEntry, largest: float) -> Text:
    """A bar whose shaded end is the time that other ranks wait."""
    columns = _BAR / max(largest, 1e-12)
    end = round(max(entry.ms, 0.0) * columns)
    shaded = min(end, round(waiting_part(entry) * columns))
    # What is there is seen, however short it is.
    drawn = "█" * (end - shaded) + _WAITING * shaded or ("▏" if entry.ms > 0 else "")
    return Text(drawn, style=COLOURS[entry.name].light)


def _epochs(analysis: Analysis) -> RenderableType | None:
    figures = epoch_figures(analysis)
    if not figures:
        return None
    grid = Table.grid(padding=(0, 2, 0, 0))
    for title, text in figures:
        grid.add_row(Text(f"{title}:", style="bold"), Text(plain(text)))
    table = _drawn(epochs_table(analysis), _MOST_EPOCHS)
    return grid if table is None else Group(grid, Text(), table)


def _ranks(analysis: Analysis) -> RenderableType | None:
    title, ranks = ranks_that_matter(analysis)
    if analysis.run.size == 1 or not ranks:
        return None
    table = _grid(title)
    table.add_column(justify="right")
    table.add_column(max_width=16, no_wrap=True, overflow="ellipsis")
    for _ in range(4):
        table.add_column(justify="right")
    unit = step_unit(analysis)
    table.add_row("rank", "host", "input", "compute", "waits", "last in", style="dim")
    cells = rank_cells(analysis, ranks)
    for rank, (own_input, compute, _, waits, _) in zip(ranks, cells, strict=True):
        stages = [
            ms if ms == NOT_MEASURED else f"{ms} {unit}" for ms in (own_input, compute, waits)
        ]
        late = "" if rank.critical_share is None else percent(rank.critical_share)
        table.add_row(str(rank.rank), Text(plain(rank.host)), *stages, late)
    unnamed = len(analysis.bottleneck.ranks) - len(ranks)
    if unnamed > 0:
        table.add_row("", Text(f"and {unnamed} more"))
    return table


def _gains(analysis: Analysis) -> RenderableType | None:
    asked = answers(analysis)
    found = [*gains(analysis)[:_MOST_GAINS], *asked]
    if not found:
        return None
    table = _grid("Potential gains")
    table.add_column(ratio=1)
    for _ in range(2):
        table.add_column(justify="right")
    for gain in found:
        what_if = gain.what_if
        table.add_row(Text(plain(gain.title)), speedup(what_if), speedup_interval(what_if))
    if any(gain.what_if.extrapolated for gain in asked):
        return Group(table, Text(EXTRAPOLATED, style="dim"))
    return table


def _drawn(words: Words | None, most: int | None = None) -> RenderableType | None:
    """A table that all formats have, without its note; its first rows only where there are more."""
    if words is None:
        return None
    table = _grid(words.title)
    for index in range(len(words.columns)):
        in_words = index in words.words
        table.add_column(justify="left" if in_words else "right", no_wrap=not in_words)
    table.add_row(*words.columns, style="dim")
    for index, row in enumerate(words.rows[:most]):
        style = "bold" if index in words.emphasised else None
        table.add_row(*(Text(plain(cell)) for cell in row), style=style)
    if most is not None and len(words.rows) > most:
        table.add_row(f"and {len(words.rows) - most} more")
    return table


def _findings(analysis: Analysis) -> RenderableType | None:
    if not analysis.findings:
        return None
    lines = [Text("Findings", style="bold")]
    for finding in analysis.findings:
        mark = Text(f"{finding.severity}: ", style=_SEVERITIES[finding.severity])
        # The files have the evidence of what is only worth knowing.
        evidence = "" if finding.severity == "info" else f"{finding.evidence} "
        lines.append(mark + Text(plain(f"{finding.title}. {evidence}{finding.advice}")))
    return Group(*lines)


def _job(analysis: Analysis) -> RenderableType:
    texts = job_texts(analysis)
    parts = [
        f"{TITLES[name].lower()} {texts[name]}" for name, value in job_parts(analysis) if value
    ]
    split = f": {', '.join(parts)}" if parts else "; what it went to was not measured"
    lines = [Text.assemble(("Job: ", "bold"), f"{job_total(analysis)}{split}")]
    moved = communication(analysis)
    if moved:
        lines.append(Text.assemble(("Communication: ", "bold"), moved))
    return Group(*lines)


def _warnings(analysis: Analysis) -> RenderableType | None:
    warnings = analysis.warnings
    if not warnings:
        return None
    lines = [Text(counted(len(warnings), "warning"), style="bold")]
    lines += [Text(plain(warning), style="yellow") for warning in warnings[:_MOST_WARNINGS]]
    if len(warnings) > _MOST_WARNINGS:
        lines.append(Text(f"and {len(warnings) - _MOST_WARNINGS} more", style="dim"))
    return Group(*lines)


def _grid(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        show_header=False,
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )


def _clipped(text: str, most: int) -> str:
    shown = Text(plain(text))
    shown.truncate(most, overflow="ellipsis")
    return shown.plain
