"""Markdown for pull requests."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.analysis.tuning import TimelineSays, Tuned, Tuning

from ..base import ReportOptions
from ..markdown import escaped, table_lines
from .contents import headline, sentences, timeline_figures, timeline_headline, tried_table
from .passing import commands, environment


def markdown_text(tuning: Tuning, options: ReportOptions) -> str:
    parts = [part for one in tuning.tuned for part in _tuned(one)]
    parts += [part for name, says in tuning.timelines for part in _timeline(name, says)]
    if tuning.warnings:
        parts.append("\n".join(f"- {escaped(text)}" for text in tuning.warnings))
    parts.append(
        f"<sub>Stallscope {escaped(options.version)}, {options.generated_at:%Y-%m-%d %H:%M} UTC.</sub>"
    )
    return "\n\n".join(parts) + "\n"


def _tuned(one: Tuned) -> Iterator[str]:
    yield f"## {escaped(headline(one))}"
    yield f"From {escaped(one.name)}."
    yield "\n".join(f"- {escaped(text)}" for text in sentences(one))
    if one.verdict != "leave" and one.setting is not None:
        yield _code("\n".join(environment(one)))
        for launcher, text in commands(one).items():
            yield f"With {launcher}:"
            yield _code(text)
    yield from table_lines(tried_table(one))


def _timeline(name: str, says: TimelineSays) -> Iterator[str]:
    yield f"## {escaped(timeline_headline(says))}"
    yield f"From {escaped(name)}."
    lines = [f"- {title}: {escaped(text)}" for title, text in timeline_figures(says)]
    yield "\n".join([*lines, *(f"- **{escaped(str(piece))}**" for piece in says.advice)])
    if says.cannot_name:
        yield escaped(says.cannot_name)


def _code(text: str) -> str:
    return f"```\n{text}\n```"
