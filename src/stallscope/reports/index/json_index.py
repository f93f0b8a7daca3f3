"""The index for programs: what docs/index.schema.json describes."""

from __future__ import annotations

import json

from ..base import ReportOptions
from ..json_report import SCHEMA_VERSION, valid
from .index import Index


def json_text(index: Index, _options: ReportOptions) -> str:
    """One object: the runs, the most costly first, and what could not be reported."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "runs": [line.content for line in index.ranked],
        "failed": list(index.failed),
    }
    return json.dumps(valid(content), indent=1, allow_nan=False) + "\n"
