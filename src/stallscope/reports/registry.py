"""The formats there are."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.errors import UsageError

from .base import Parts, Report, ReportOptions
from .csv_report import CsvReport
from .formats.csv_text import csv_text
from .formats.html import html_text
from .formats.json_text import json_text
from .formats.markdown import markdown_text
from .html import HtmlReport
from .json_report import JsonReport
from .markdown import MarkdownReport
from .openmetrics import OpenMetricsReport

REPORTS: tuple[Report, ...] = (
    HtmlReport(),
    MarkdownReport(),
    JsonReport(),
    CsvReport(),
    OpenMetricsReport(),
)

#: The formats of reports on several runs.
DOCUMENTS = ("html", "md", "json", "csv")


WRITERS = {"html": html_text, "md": markdown_text, "json": json_text, "csv": csv_text}


def render(name: str, parts: Parts, options: ReportOptions) -> str:
    """Write a report in the format of that name."""
    return WRITERS[name](parts, options)


def names() -> list[str]:
    """The names for ``--format``."""
    return [report.name for report in REPORTS]


def by_name(name: str) -> Report:
    """The format of that name.

    Raises:
        UsageError: if there is none; the message lists those there are.
    """
    for report in REPORTS:
        if report.name == name:
            return report
    raise UsageError(f"no report format {name!r}: there are {', '.join(names())}")


def parse(text: str, known: Sequence[str] = DOCUMENTS) -> list[str]:
    """The names in a list such as ``html,md``, each once, in the order given.

    Raises:
        UsageError: if one of them is none of those known, or there is none at all.
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError(f"no report format in {text!r}: there are {', '.join(known)}")
    for word in words:
        if word not in known:
            raise UsageError(f"no report format {word!r}: there are {', '.join(known)}")
    return list(dict.fromkeys(words))
