"""Which tests stay together where several workers run tests, and which begin first.

One worker has all tests that talk to servers, which start once and mostly wait, another all that look
at pages, as two browsers at a time are slow; of the others every file is one worker's, as its tests
share what they have made.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[2]
#: In whose files all tests are one group: a file that has both markers is the first one's.
_TOGETHER = ("services", "browser")
#: Folders whose tests start processes: Spark's for minutes.
_SLOW = ("spark", "cli", "batch")


@cache
def group_of(file: str) -> str:
    """The group of a file's tests.

    By its text: who hands out tests does not collect them and knows none of their markers.

    Args:
        file: as in the ids of its tests, from the repository's root.
    """
    text = (_ROOT / file).read_text("utf-8")
    return next((name for name in _TOGETHER if f"pytest.mark.{name}" in text), file)


def turn(test: str) -> int:
    """When a test begins, by its id: the lower, the earlier."""
    file = test.partition("::")[0]
    if group_of(file) in _TOGETHER:
        return 0
    folder = Path(file).parent.name
    return 1 + _SLOW.index(folder) if folder in _SLOW else 1 + len(_SLOW)
