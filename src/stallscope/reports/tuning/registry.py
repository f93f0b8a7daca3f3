"""The formats there are."""

from __future__ import annotations

from collections.abc import Callable

from stallscope.analysis.tuning import Tuning

from ..base import ReportOptions
from .json_report import json_text
from .markdown import markdown_text

#: By the name for ``--format``; each gives the whole document as text.
FORMATS: dict[str, Callable[[Tuning, ReportOptions], str]] = {
    "md": markdown_text,
    "json": json_text,
}


def render(name: str, tuning: Tuning, options: ReportOptions) -> str:
    """The document in one of the formats."""
    return FORMATS[name](tuning, options)
