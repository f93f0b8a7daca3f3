"""Reports on which of Horovod's settings to pin."""

from functools import partial

from stallscope.analysis.tuning import Tuning

from ..base import ReportParts
from .document import document
from .json_content import json_content

__all__ = ["FORMATS", "parts"]

#: The formats of these reports.
FORMATS = ("md", "json")


def parts(tuning: Tuning) -> ReportParts:
    """Return the parts of the report on settings."""
    return ReportParts(partial(document, tuning), partial(json_content, tuning))
