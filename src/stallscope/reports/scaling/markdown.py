"""Markdown for pull requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.analysis.scaling import Series

from ..base import ReportOptions
from ..markdown import escaped, table_lines
from .contents import difference, headline, lost_table, published_table, rates_table, title


def markdown_text(series: Sequence[Series], options: ReportOptions) -> str:
    parts = [part for one in series for part in _series(one)]
    parts += table_lines(published_table())
    parts.append(
        f"<sub>Stallscope {escaped(options.version)}, {options.generated_at:%Y-%m-%d %H:%M} UTC.</sub>"
    )
    return "\n\n".join(parts) + "\n"


def _series(series: Series) -> Iterator[str]:
    yield f"## {escaped(title(series))}: {escaped(headline(series))}"
    yield from table_lines(rates_table(series))
    yield from table_lines(lost_table(series))
    said = [text for text in (difference(series), *series.warnings) if text]
    if said:
        yield "\n".join(f"- {escaped(text)}" for text in said)
