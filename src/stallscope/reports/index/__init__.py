"""An index of the reports on many runs: ranked by lost time, with trends."""

from functools import partial

from ..report_formats import ReportParts
from .index_lines import Index, IndexLine, by_time_lost, line_of

__all__ = ["Index", "IndexLine", "by_time_lost", "line_of", "parts"]


def parts(index: Index) -> ReportParts:
    """Return the parts of the index."""
    # Every report makes a line for an index, but few runs have one.
    from .index_document import document
    from .index_lines import json_content, records

    return ReportParts(
        partial(document, index), partial(json_content, index), partial(records, index)
    )
