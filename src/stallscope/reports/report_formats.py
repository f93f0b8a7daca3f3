"""The formats of reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pkgutil import resolve_name

from stallscope.errors import UsageError

from .parts import ReportOptions, ReportParts


@dataclass(frozen=True)
class ReportFormat:
    """A format of files. A new one is a file in ``formats/`` and an entry below."""

    #: The name for ``--format``.
    name: str
    #: The suffix of its files.
    suffix: str
    #: Its module in ``formats/`` and its function, which are imported on first use.
    writer: str


FORMATS = (
    ReportFormat("html", ".html", "html:html_text"),
    ReportFormat("md", ".md", "markdown:markdown_text"),
    ReportFormat("json", ".json", "machine_formats:json_text"),
    ReportFormat("csv", ".csv", "machine_formats:csv_text"),
    ReportFormat("openmetrics", ".prom", "machine_formats:openmetrics_text"),
)

#: The formats of reports on several runs.
SEVERAL_RUNS = ("html", "md", "json", "csv")


def names() -> list[str]:
    """Return the names for ``--format``."""
    return [report_format.name for report_format in FORMATS]


def by_name(name: str) -> ReportFormat:
    """Return the format of that name.

    Raises:
        UsageError: if there is none; the message lists the known names.
    """
    for report_format in FORMATS:
        if report_format.name == name:
            return report_format
    raise UsageError(f"no report format {name!r}: there are {', '.join(names())}")


def render(name: str, parts: ReportParts, options: ReportOptions) -> str:
    """Return the whole report as text, in the format of that name.

    Raises:
        UsageError: if there is no such format.
    """
    writer = resolve_name(f"{__package__}.formats.{by_name(name).writer}")
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
