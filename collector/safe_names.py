"""Names from logs as names of files: never a path, never hidden, never empty."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# Leaves room for suffixes under the 255 bytes that file systems allow.
_LONGEST = 100


def safe_name(text: str) -> str:
    """``text`` reduced to letters, digits, dot, dash and underscore, not beginning with a dot."""
    return _UNSAFE.sub("-", text).strip(".-")[:_LONGEST] or "unnamed"
