"""Reports on two runs side by side, and on the runs of jobs over time."""

from functools import partial

from ..report_formats import ReportParts
from .comparison_document import Compared, document, json_content, records

__all__ = ["Compared", "parts"]


def parts(compared: Compared) -> ReportParts:
    """Return the parts of the report on a comparison."""
    return ReportParts(
        partial(document, compared), partial(json_content, compared), partial(records, compared)
    )
