"""Suggest an existing path for a misspelt one."""

from __future__ import annotations

import os
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

# A folder with more entries is not searched further.
_MOST_ENTRIES = 10_000


def did_you_mean(missing: str) -> str:
    """Return "; did you mean PATH?" with a path that exists; empty if none is near the missing one."""
    path = Path(missing)
    # The first missing part is the misspelt one.
    while not path.parent.exists() and path.parent != path:
        path = path.parent
    with suppress(OSError), os.scandir(path.parent) as entries:
        names = [entry.name for entry in islice(entries, _MOST_ENTRIES)]
        near = get_close_matches(path.name, names, n=1)
        if near:
            return f"; did you mean {path.parent / near[0]}?"
    return ""
