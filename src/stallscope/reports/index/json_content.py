"""The JSON of the index, which docs/index.schema.json describes."""

from __future__ import annotations

from ..content import SCHEMA_VERSION, Content, valid
from .index import Index


def json_content(index: Index) -> Content:
    """Return one object: the runs, the most costly first, and those that could not be reported."""
    content: Content = valid(
        {
            "schema_version": SCHEMA_VERSION,
            "runs": [line.content for line in index.ranked],
            "failed": list(index.failed),
        }
    )
    return content
