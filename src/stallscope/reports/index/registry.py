"""The formats that an index has."""

from __future__ import annotations

from collections.abc import Callable

from ..base import ReportOptions
from .csv_index import csv_text
from .html import html_text
from .index import Index
from .json_index import json_text
from .markdown import markdown_text

#: By the name for ``--format``; each gives the whole index as text.
FORMATS: dict[str, Callable[[Index, ReportOptions], str]] = {
    "html": html_text,
    "md": markdown_text,
    "json": json_text,
    "csv": csv_text,
}


def render(name: str, index: Index, options: ReportOptions) -> str:
    """The index in one of the formats."""
    return FORMATS[name](index, options)
