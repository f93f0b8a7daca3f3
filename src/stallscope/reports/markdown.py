"""Markdown for pull requests: verdict, ledger, gains, findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

from stallscope.analysis import Analysis
from stallscope.formatting.plain import plain
from stallscope.text.epochs import epoch_figures, ranks_and_hosts, steps_and_epochs
from stallscope.text.fixes import how_sure, saving, speedup
from stallscope.text.gains import main_gain
from stallscope.text.machines import evidence
from stallscope.text.verdicts import basis, headline

from .base import Report, ReportOptions
from .contents import advice, context, gap, throughput
from .document import Table
from .loader_tables import rates_table, stages_table
from .tables import (
    baselines_table,
    cause_table,
    epochs_table,
    events_table,
    gains_table,
    ledger_table,
    stragglers_table,
)

_SPECIAL = re.compile(r"([\\`*_{}\[\]|~#$])")
# Renderers of pull requests link and notify at these.
_LIVE = re.compile(r"([@#])(?=\w)|(?<=\w)(:)(?=//)|(?<=www)(\.)", re.IGNORECASE)
_MOST_ROWS = 20
_MOST_WARNINGS = 10


class MarkdownReport(Report):
    name: ClassVar[str] = "md"
    suffix: ClassVar[str] = ".md"

    def render(self, analysis: Analysis, options: ReportOptions) -> str:
        parts = (
            *_verdict(analysis),
            *table_lines(epochs_table(analysis)),
            *table_lines(cause_table(analysis)),
            *table_lines(ledger_table(analysis)),
            *table_lines(stragglers_table(analysis)),
            *table_lines(gains_table(analysis)),
            *table_lines(baselines_table(analysis)),
            *table_lines(rates_table(analysis)),
            *table_lines(stages_table(analysis)),
            *_findings(analysis),
            *table_lines(events_table(analysis)),
            *_context(analysis),
            *_warnings(analysis),
            f"<sub>Stallscope {escaped(options.version)}, "
            f"{options.generated_at:%Y-%m-%d %H:%M} UTC; {escaped(basis(analysis))}.</sub>",
        )
        return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Text that shows as itself, on one line: no markup, no HTML, no links, no notifications."""
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _LIVE.sub(lambda found: f"{found[0]}<!-- -->", text)
    return _outside_comments(text)


def _outside_comments(text: str) -> str:
    return "<!-- -->".join(_SPECIAL.sub(r"\\\1", piece) for piece in text.split("<!-- -->"))


def _verdict(analysis: Analysis) -> Iterator[str]:
    yield f"## {escaped(headline(analysis.bottleneck, analysis.stragglers))}"
    yield f"**{escaped(analysis.run.name)}**: {escaped(_about(analysis))}"
    yield escaped(analysis.bottleneck.evidence)
    measured = evidence(analysis)
    if measured:
        yield escaped(measured)
    gain = main_gain(analysis)
    if gain is not None:
        yield (
            f"**{escaped(gain.title)}, steps would be {speedup(gain.what_if)} as fast** "
            f"({how_sure(gain.what_if)}): that saves "
            f"{saving(gain.what_if, analysis)}."
        )
    steps = advice(analysis)
    if steps:
        yield "**What to do**\n\n" + "\n".join(f"- {escaped(step)}" for step in steps)


def _about(analysis: Analysis) -> str:
    parts = [
        ranks_and_hosts(analysis),
        steps_and_epochs(analysis),
        throughput(analysis),
    ]
    if analysis.baseline is not None:
        parts.append(f"against baseline {analysis.baseline.run.name}")
    return ", ".join(part for part in parts if part)


def table_lines(table: Table | None) -> Iterator[str]:
    """The table as blocks: its title, its rows as far as people read them, its note."""
    if table is None:
        return
    rule = ("---" if index in table.words else "---:" for index in range(len(table.columns)))
    lines = [_row(table.columns), _row(rule)]
    for index, row in enumerate(table.rows[:_MOST_ROWS]):
        cells = map(escaped, row)
        lines.append(
            _row(f"**{cell}**" for cell in cells) if index in table.emphasised else _row(cells)
        )
    yield f"### {table.title}"
    yield "\n".join(lines)
    if len(table.rows) > _MOST_ROWS:
        yield f"And {len(table.rows) - _MOST_ROWS} more."
    if table.note:
        yield table.note


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _findings(analysis: Analysis) -> Iterator[str]:
    if not analysis.findings:
        return
    yield "### Findings"
    yield "\n".join(
        f"- **{finding.severity}: {escaped(finding.title)}.** {escaped(finding.evidence)} "
        f"{escaped(finding.advice)}"
        for finding in analysis.findings
    )


def _context(analysis: Analysis) -> Iterator[str]:
    lost = gap(analysis)
    facts = [*epoch_figures(analysis), *([("Throughput lost", lost)] if lost else [])]
    facts += context(analysis)
    if facts:
        yield "### What the figures rest on"
        yield "\n".join(f"- {title}: {escaped(text)}" for title, text in facts)


def _warnings(analysis: Analysis) -> Iterator[str]:
    warnings = list(analysis.warnings)
    if not warnings:
        return
    lines = [f"- {escaped(warning)}" for warning in warnings[:_MOST_WARNINGS]]
    if len(warnings) > _MOST_WARNINGS:
        lines.append(f"- and {len(warnings) - _MOST_WARNINGS} more")
    yield "### Warnings"
    yield "\n".join(lines)
