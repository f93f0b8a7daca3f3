"""Reports on how jobs scale."""

from collections.abc import Sequence
from functools import partial

from stallscope.analysis.scaling import ScalingSeries

from ..report_formats import ReportParts
from .scaling_document import document, json_content, records

__all__ = ["parts"]


def parts(series: Sequence[ScalingSeries], warnings: Sequence[str] = ()) -> ReportParts:
    """Return the parts of the report on scaling.

    Args:
        warnings: about what is in no run at the places of the runs.
    """
    return ReportParts(
        partial(document, series, warnings),
        partial(json_content, series, warnings),
        partial(records, series),
    )
