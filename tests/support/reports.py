"""Reports on one run, as text."""

from __future__ import annotations

from rich.console import RenderableType

from stallscope.analysis import Analysis
from stallscope.reports.base import ReportOptions
from stallscope.reports.formats.terminal import terminal_summary
from stallscope.reports.registry import render
from stallscope.reports.run import parts


def rendered(name: str, analysis: Analysis, options: ReportOptions) -> str:
    """Return the report in the format of that name."""
    return render(name, parts(analysis), options)


def summary(analysis: Analysis) -> RenderableType:
    """Return the report for a terminal."""
    return terminal_summary(parts(analysis).document("terminal"))
