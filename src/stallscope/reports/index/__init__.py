"""An index of the reports on many runs: ranked by lost time, with trends."""

from functools import partial

from ..base import ReportParts
from .index import Index, IndexLine, by_time_lost, line_of

__all__ = ["Index", "IndexLine", "by_time_lost", "line_of", "parts"]


def parts(index: Index) -> ReportParts:
    """Return what formats write of the index."""
    # Every report makes its line of an index, and few are listed in one.
    from .document import document
    from .records import json_content, records

    return ReportParts(
        partial(document, index), partial(json_content, index), partial(records, index)
    )
