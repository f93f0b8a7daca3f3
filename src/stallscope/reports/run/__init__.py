"""Reports on one run."""

from functools import partial

from stallscope.analysis import Analysis

from ..base import ReportParts
from .document import document
from .json_content import json_content
from .metrics import metrics
from .records import records

__all__ = ["json_content", "parts"]


def parts(analysis: Analysis) -> ReportParts:
    """Return the parts of the report on a run."""
    return ReportParts(
        partial(document, analysis),
        partial(json_content, analysis),
        partial(records, analysis),
        partial(metrics, analysis),
    )
