"""The summary that fits a terminal of 80 columns."""

from __future__ import annotations

from rich import box
from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stallscope.analysis import Analysis
from stallscope.analysis.result import LedgerEntry, RankSummary
from stallscope.pictures.charts import TITLES
from stallscope.pictures.palette import COLOURS
from stallscope.wording.gains import gains, main_gain
from stallscope.wording.numbers import amount, finite, percent, signed
from stallscope.wording.plain import plain
from stallscope.wording.verdicts import (
    basis,
    counted,
    headline,
    kind_title,
    saving,
    speedup,
    speedup_interval,
)

from .contents import advice, job_parts, ranks_that_matter

_BAR = 22
_MOST_GAINS = 5
_MOST_WARNINGS = 5
_SEVERITIES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def summary(analysis: Analysis) -> RenderableType:
    """Verdict, ledger, ranks that matter, gains, findings, job time and warnings.

    To be printed by a ``rich`` console at least 80 columns wide.
    """
    sections = (
        _verdict(analysis),
        _ledger(analysis),
        _ranks(analysis),
        _gains(analysis),
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
        Text(plain(headline(bottleneck)), style="bold"),
        Text(plain(bottleneck.evidence)),
        Text(),
    ]
    gain = main_gain(analysis)
    if gain is not None:
        lines.append(
            Text.assemble(
                f"{plain(gain.title)}, steps would be ",
                (f"{speedup(gain.what_if)} as fast", "bold"),
                f" (95% interval: {speedup_interval(gain.what_if)}), saving "
                f"{saving(gain.what_if, analysis)}.",
            )
        )
    steps = Table.grid(padding=(0, 1, 0, 0))
    for step in advice(analysis):
        steps.add_row("→", Text(plain(step)))
    lines += [steps, Text(f"From {basis(analysis)}.", style="dim")]
    title = Text(_clipped(f"{analysis.run.name}: {kind_title(bottleneck.kind)}", 70))
    return Panel(
        Group(*lines), title=title, title_align="left", border_style=colour, box=box.ROUNDED
    )


def _ledger(analysis: Analysis) -> RenderableType:
    step = analysis.step
    if step is None or not analysis.entries:
        mean = "" if step is None else f"; a step takes {amount(step.mean, 'ms', step.ci95)}"
        return Text(f"Stages of the steps: not measured{mean}")
    table = _grid(f"Where a step's {amount(step.mean, 'ms', step.ci95)} go")
    table.add_column(no_wrap=True)
    table.add_column(width=_BAR)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    if analysis.baseline is not None:
        table.add_row("", "", "", "", "excess, ms", style="dim")
    largest = max(entry.ms for entry in analysis.entries)
    for entry in analysis.entries:
        table.add_row(*_ledger_row(entry, largest, step.mean))
    return table


def _ledger_row(entry: LedgerEntry, largest: float, whole: float) -> list[RenderableType]:
    bar = Bar(max(largest, 1e-12), 0, max(entry.ms, 0.0), color=COLOURS[entry.name].light)
    excess = finite(entry.excess_ms)
    return [
        TITLES[entry.name],
        bar,
        amount(entry.ms, "ms", entry.ci95_ms),
        percent(entry.share),
        "" if excess is None else signed(excess, beside=whole),
    ]


def _ranks(analysis: Analysis) -> RenderableType | None:
    title, ranks = ranks_that_matter(analysis)
    if analysis.run.size == 1 or not ranks:
        return None
    table = _grid(title)
    table.add_column(justify="right")
    table.add_column(max_width=16, no_wrap=True, overflow="ellipsis")
    for _ in range(4):
        table.add_column(justify="right")
    table.add_row("rank", "host", "input", "compute", "waits", "last in", style="dim")
    for rank in ranks:
        table.add_row(*_rank_row(rank))
    unnamed = len(analysis.bottleneck.ranks) - len(ranks)
    if unnamed > 0:
        table.add_row("", Text(f"and {unnamed} more"))
    return table


def _rank_row(rank: RankSummary) -> list[RenderableType]:
    return [
        str(rank.rank),
        Text(plain(rank.host)),
        amount(rank.input_ms, "ms"),
        amount(rank.compute_ms, "ms"),
        amount(rank.wait_ms, "ms"),
        "" if rank.critical_share is None else percent(rank.critical_share),
    ]


def _gains(analysis: Analysis) -> RenderableType | None:
    found = gains(analysis)[:_MOST_GAINS]
    if not found:
        return None
    table = _grid("What fixing gains")
    table.add_column(ratio=1)
    for _ in range(2):
        table.add_column(justify="right")
    for gain in found:
        what_if = gain.what_if
        table.add_row(Text(plain(gain.title)), speedup(what_if), speedup_interval(what_if))
    return table


def _findings(analysis: Analysis) -> RenderableType | None:
    if not analysis.findings:
        return None
    lines = [Text("Findings", style="bold")]
    for finding in analysis.findings:
        mark = Text(f"{finding.severity}: ", style=_SEVERITIES[finding.severity])
        lines.append(mark + Text(plain(f"{finding.title}. {finding.evidence} {finding.advice}")))
    return Group(*lines)


def _job(analysis: Analysis) -> RenderableType:
    parts = [
        f"{TITLES[name].lower()} {amount(value, 's')}"
        for name, value in job_parts(analysis)
        if value
    ]
    split = f": {', '.join(parts)}" if parts else "; what it went to was not measured"
    return Text.assemble(("Job ", "bold"), f"{amount(analysis.job.total, 's')}{split}")


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
