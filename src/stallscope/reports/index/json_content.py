"""The JSON of the index, which docs/index.schema.json describes."""

from __future__ import annotations

from ..base import Content, content_of
from .index import Index


def json_content(index: Index) -> Content:
    """Return one object: the runs, the most costly first, and those that could not be reported."""
    return content_of(runs=index.ranked, failed=index.failed)
