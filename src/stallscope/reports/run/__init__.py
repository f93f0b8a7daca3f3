"""Reports on one run."""

from functools import partial

from stallscope.analysis import Analysis

from ..report_formats import ReportParts
from .json_content import json_content
from .run_document import document
from .run_records import metrics, records

__all__ = ["json_content", "parts"]


def parts(analysis: Analysis) -> ReportParts:
    """Return the parts of the report on a run."""
    return ReportParts(
        partial(document, analysis),
        partial(json_content, analysis),
        partial(records, analysis),
        partial(metrics, analysis),
    )
