"""The formats there are."""

from __future__ import annotations

from collections.abc import Callable

from ..base import ReportOptions
from .compared import Compared
from .csv_report import csv_text
from .html import html_text
from .json_report import json_text
from .markdown import markdown_text

#: By the name for ``--format``; each gives the whole document as text.
FORMATS: dict[str, Callable[[Compared, ReportOptions], str]] = {
    "html": html_text,
    "md": markdown_text,
    "json": json_text,
    "csv": csv_text,
}


def render(name: str, compared: Compared, options: ReportOptions) -> str:
    """The document in one of the formats."""
    return FORMATS[name](compared, options)
