"""JSON for programs."""

from __future__ import annotations

import json

from ..base import ReportOptions, ReportParts


def json_text(parts: ReportParts, _options: ReportOptions) -> str:
    """Write the content as one object."""
    return json.dumps(parts.content(), indent=1, allow_nan=False) + "\n"
