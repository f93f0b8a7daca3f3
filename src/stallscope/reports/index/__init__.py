"""An index of the reports on many runs: ranked by lost time, with trends."""

from functools import partial

from ..base import ReportParts
from .document import document
from .index import Index, IndexLine, by_time_lost, line_of
from .records import json_content, records

__all__ = ["Index", "IndexLine", "by_time_lost", "line_of", "parts"]


def parts(index: Index) -> ReportParts:
    """Return what formats write of the index."""
    return ReportParts(
        partial(document, index), partial(json_content, index), partial(records, index)
    )
