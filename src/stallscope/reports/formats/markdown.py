"""A document in Markdown, for pull requests and job summaries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

from stallscope.analysis.gains.what_if import Advice
from stallscope.formatting.plain import code_parts, plain

from ..document import (
    Cell,
    Code,
    DocumentBlock,
    Findings,
    KeyFigures,
    Listing,
    Section,
    Steps,
    Table,
    Text,
)
from ..report_formats import ReportOptions, ReportParts

_NAME = "md"
_SPECIAL = re.compile(r"([\\`*_{}\[\]|~#$])")
# Renderers of pull requests link and notify at these.
_LIVE = re.compile(r"([@#])(?=\w)|(?<=\w)(:)(?=//)|(?<=www)(\.)", re.IGNORECASE)
_MOST_ROWS = 20


def markdown_text(parts: ReportParts, options: ReportOptions) -> str:
    """Write the document's sections, one below the other."""
    document = parts.document(_NAME)
    written = [part for section in document.sections for part in _section(section)]
    basis = f"; {escaped(document.basis)}" if document.basis else ""
    written.append(
        f"<sub>Stallscope {escaped(options.version)}, "
        f"{options.generated_at:%Y-%m-%d %H:%M} UTC{basis}.</sub>"
    )
    return "\n\n".join(written) + "\n"


def escaped(text: str) -> str:
    """Return text that shows as itself, on one line: no markup, HTML, links or notifications."""
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _LIVE.sub(lambda match: f"{match[0]}<!-- -->", text)
    return "<!-- -->".join(_SPECIAL.sub(r"\\\1", piece) for piece in text.split("<!-- -->"))


def _sentence(text: str) -> str:
    """Return a sentence in which text between backticks is code, to be copied as it is.

    Code needs no escapes: it contains no backticks. Only spaces at its ends are lost.
    """
    return "".join(
        f"`{plain(part)}`" if is_code and part.strip() else escaped(part)
        for part, is_code in code_parts(text)
    )


def _section(section: Section) -> Iterator[str]:
    named = (isinstance(block, Table) and block.title == section.title for block in section.blocks)
    if not any(named):
        level = "##" if section.style in ("headline", "verdict") else "###"
        yield f"{level} {escaped(section.title)}"
    if section.label and section.style == "headline":
        yield escaped(section.label)
    for block in section.blocks:
        yield from _WRITERS[type(block)](block)


def _text(text: Text) -> Iterator[str]:
    lead = f"**{escaped(text.lead)}**" if text.lead else ""
    yield f"{lead}{_sentence(text.text)}"


def _listing(listing: Listing) -> Iterator[str]:
    yield _titled(listing.title, _points(listing))


def _titled(title: str, points: Iterable[str]) -> str:
    heading = f"**{escaped(title)}**\n\n" if title else ""
    return heading + "\n".join(points)


def _points(listing: Listing) -> Iterator[str]:
    most = listing.most.get(_NAME, len(listing.items))
    yield from (f"- {_sentence(item)}" for item in listing.items[:most])
    if len(listing.items) > most:
        yield f"- and {len(listing.items) - most:,} more"


def _steps(steps: Steps) -> Iterator[str]:
    yield _titled(steps.title, (f"- {_advice([advice])}" for advice in steps.items))


def _advice(pieces: Iterable[Advice]) -> str:
    """Write advice after a point's dash: a bold action, a line to copy, a caveat."""
    return "\n\n  ".join(part for advice in pieces for part in _parts(advice))


def _parts(advice: Advice) -> Iterator[str]:
    reason = f"{_sentence(advice.reason)} " if advice.reason else ""
    yield f"{reason}**{_sentence(advice.emphasised)}**{_sentence(advice.rest)}"
    if advice.line:
        yield f"```\n  {plain(advice.line)}\n  ```"
    if advice.caveat:
        yield _sentence(advice.caveat)


def _key_figures(block: KeyFigures) -> Iterator[str]:
    yield "\n".join(f"- {escaped(figure.name)}: {escaped(figure.text)}" for figure in block.figures)


def _findings(findings: Findings) -> Iterator[str]:
    yield "\n".join(
        f"- **{finding.severity}: {escaped(finding.title)}.** {_sentence(finding.evidence)}\n\n"
        f"  {_advice(finding.advice)}"
        for finding in findings.items
    )


def _code(code: Code) -> Iterator[str]:
    if code.title:
        yield f"With {code.title}:"
    yield f"```\n{code.text}\n```"


def _table(table: Table) -> Iterator[str]:
    """Write the title, the first rows, and the note."""
    columns, rows = table.shown_columns(_NAME), table.shown_rows(_NAME, _MOST_ROWS)
    lines = [
        _row(escaped(table.columns[at]) for at in columns),
        _row("---" if at in table.words else "---:" for at in columns),
    ]
    for at in rows:
        cells = (_cell(table.rows[at][column]) for column in columns)
        lines.append(
            _row(f"**{cell}**" for cell in cells) if at in table.emphasised else _row(cells)
        )
    yield f"### {escaped(table.title)}"
    yield "\n".join(lines)
    if len(table.rows) > len(rows):
        yield f"And {len(table.rows) - len(rows):,} more."
    if table.note:
        yield escaped(table.note)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: str) -> str:
    text = escaped(cell)
    link = cell.link if isinstance(cell, Cell) else None
    return f"[{text}]({quote(link)})" if link else text


_WRITERS: dict[type[DocumentBlock], Callable[[Any], Iterator[str]]] = {
    Text: _text,
    Listing: _listing,
    Steps: _steps,
    KeyFigures: _key_figures,
    Findings: _findings,
    Table: _table,
    Code: _code,
}
