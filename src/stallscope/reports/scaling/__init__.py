"""Reports on how jobs scale."""

from collections.abc import Sequence
from functools import partial

from stallscope.analysis.scaling import ScalingSeries

from ..base import ReportParts
from .document import document
from .records import json_content, records

__all__ = ["parts"]


def parts(series: Sequence[ScalingSeries]) -> ReportParts:
    """Return the parts of the report on scaling."""
    return ReportParts(
        partial(document, series), partial(json_content, series), partial(records, series)
    )
