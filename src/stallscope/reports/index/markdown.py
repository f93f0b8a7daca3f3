"""The index in Markdown: for job summaries and pull requests."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from ..base import ReportOptions
from ..markdown import escaped
from .index import Index, gain, lost, ranks, throughput
from .line import Line

_COLUMNS = ("Run", "Verdict", "Time lost", "Fix", "Gain", "Throughput", "Ranks", "Started")
_RULE = ("---", "---", "---:", "---", "---:", "---:", "---:", "---")
# What a job summary takes is limited.
_MOST_ROWS = 200
_MOST_FAILED = 50


def markdown_text(index: Index, options: ReportOptions) -> str:
    """Ranked by time lost; links go to the runs' own Markdown."""
    return "\n\n".join(_parts(index, options)) + "\n"


def _parts(index: Index, options: ReportOptions) -> Iterator[str]:
    yield f"## {escaped(index.headline)}"
    ranked = index.ranked
    rows = [_row(line, index) for line in ranked[:_MOST_ROWS]]
    yield "\n".join(f"| {' | '.join(row)} |" for row in (_COLUMNS, _RULE, *rows))
    if len(ranked) > _MOST_ROWS:
        yield f"And {len(ranked) - _MOST_ROWS} more."
    yield index.note
    if index.failed:
        yield "### Not reported"
        lines = [f"- {escaped(sentence)}" for sentence in index.failed[:_MOST_FAILED]]
        if len(index.failed) > _MOST_FAILED:
            lines.append(f"- and {len(index.failed) - _MOST_FAILED} more")
        yield "\n".join(lines)
    yield (
        f"<sub>Stallscope {escaped(options.version)}, "
        f"{options.generated_at:%Y-%m-%d %H:%M} UTC.</sub>"
    )


def _row(line: Line, index: Index) -> tuple[str, ...]:
    page = index.page(line, ".md")
    name = escaped(line.name)
    cells = (
        line.said,
        lost(line, index.scale),
        line.fix or "",
        gain(line),
        throughput(line),
        ranks(line),
        line.began or "",
    )
    return (f"[{name}]({quote(page)})" if page else name, *map(escaped, cells))
