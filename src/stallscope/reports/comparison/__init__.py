"""Reports on two runs side by side, and on the runs of jobs over time."""

from functools import partial

from ..base import ReportParts
from .document import Compared, document
from .records import json_content, records

__all__ = ["Compared", "parts"]


def parts(compared: Compared) -> ReportParts:
    """Return what formats write of the comparison."""
    return ReportParts(
        partial(document, compared), partial(json_content, compared), partial(records, compared)
    )
