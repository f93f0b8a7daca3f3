"""List the descendants of a process."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from pathlib import Path


def children(parent: int) -> list[int]:
    """Return the children of a process, started from any of its threads."""
    return _by_parent()[parent]


def with_children(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    by_parent, found = _by_parent(), [pid]
    for one in found:
        found += by_parent[one]
    return found


def after_name(stat: Path) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on: a name may contain spaces and parentheses.

    Raises:
        OSError: if the process has ended.
    """
    return stat.read_text().rpartition(")")[2].split()


def _by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            found[int(after_name(path)[1])].append(int(path.parent.name))
    return found
