"""The formats of reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pkgutil import resolve_name

from stallscope.errors import UsageError
from stallscope.plugins import plugins

from .parts import ReportOptions, ReportParts


@dataclass(frozen=True)
class ReportFormat:
    """A format of files. A new one is a function in ``formats/`` and an entry below."""

    #: The name for ``--format``.
    name: str
    #: The suffix of its files.
    suffix: str
    #: Writes the whole report. Of a built-in format, its module in ``formats/`` and its function, which
    #: are imported on first use.
    writer: str | Callable[[ReportParts, ReportOptions], str]


FORMATS = (
    ReportFormat("html", ".html", "html:html_text"),
    ReportFormat("md", ".md", "markdown:markdown_text"),
    ReportFormat("json", ".json", "machine_formats:json_text"),
    ReportFormat("csv", ".csv", "machine_formats:csv_text"),
    ReportFormat("openmetrics", ".prom", "machine_formats:openmetrics_text"),
)
#: The names of these formats.
BUILT_IN = tuple(report_format.name for report_format in FORMATS)
#: The formats of reports on several runs.
SEVERAL_RUNS = ("html", "md", "json", "csv")


@cache
def _formats() -> tuple[ReportFormat, ...]:
    """Return all formats, with those of other packages by the names of their entry points."""
    parts = plugins("reports", ReportFormat, lambda: BUILT_IN)
    return *FORMATS, *(replace(plugin.part, name=plugin.name) for plugin in parts)


def names() -> list[str]:
    """Return the names for ``--format``."""
    return [report_format.name for report_format in _formats()]


def by_name(name: str) -> ReportFormat:
    """Return the format of that name.

    Raises:
        UsageError: if there is none; the message lists the known names.
    """
    for report_format in _formats():
        if report_format.name == name:
            return report_format
    raise UsageError(f"no report format {name!r}: there are {', '.join(names())}")


def render(name: str, parts: ReportParts, options: ReportOptions) -> str:
    """Return the whole report as text, in the format of that name.

    Raises:
        UsageError: if there is no such format.
    """
    writer = by_name(name).writer
    if isinstance(writer, str):
        writer = resolve_name(f"{__package__}.formats.{writer}")
    return str(writer(parts, options))


def parse(text: str, known: Sequence[str] = SEVERAL_RUNS) -> list[str]:
    """Return the names in a list such as ``html,md``, each once, in the order given.

    Raises:
        UsageError: if a name is unknown, or the list is empty.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError(f"no report format in {text!r}: there are {', '.join(known)}")
    for word in words:
        if word not in known:
            raise UsageError(f"no report format {word!r}: there are {', '.join(known)}")
    return list(dict.fromkeys(words))
