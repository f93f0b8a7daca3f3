"""Reports on one run."""

from functools import partial

from stallscope.analysis import Analysis

from ..base import Parts
from .document import document
from .json_content import json_content
from .metrics import metrics
from .records import records

__all__ = ["json_content", "parts"]


def parts(analysis: Analysis) -> Parts:
    """Return what formats write of the analysis."""
    return Parts(
        partial(document, analysis),
        partial(json_content, analysis),
        partial(records, analysis),
        partial(metrics, analysis),
    )
