"""Convert names from logs to safe file names: never a path, hidden or empty."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# With a suffix, names must fit into the 255 bytes that file systems allow.
_LONGEST = 100


def safe_name(text: str) -> str:
    """Reduce ``text`` to letters, digits, dots, dashes and underscores, not starting with a dot."""
    return _UNSAFE.sub("-", text).strip(".-")[:_LONGEST] or "unnamed"
