"""The groups of tests that stay on one worker, their order, and one case of each.

One worker gets all tests that talk to servers, which start once and mostly wait. Another gets all
tests that look at pages, as two browsers at a time are slow, and another all that read what one launch
of ranks recorded. Every other file goes to one worker, as its tests share fixtures.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[2]
#: All tests of a file with one of these are one group: a file with both belongs to the first.
_TOGETHER = ("services", "browser", "cases")
#: Folders whose tests start processes: Spark's take minutes.
_SLOW = ("spark", "cli", "batch")
#: Files in which ranks train longest.
LONG = tuple(
    f"tests/training/test_{name}.py"
    for name in (
        *("generations", "recorder_pages", "torch_ranks", "timelines", "hangs", "cluster"),
        *("hugging_face", "keras3", "tutorial", "netcheck", "failures", "end_summary", "faults"),
    )
)


@cache
def group_of(file: str) -> str:
    """Return the group of a file's tests.

    It reads the file's text: the scheduler does not collect tests and knows none of their markers.

    Args:
        file: as in the ids of its tests, from the repository's root.
    """
    text = (_ROOT / file).read_text("utf-8")
    return next((name for name in _TOGETHER if f"pytest.mark.{name}" in text), file)


def turn(test: str) -> int:
    """Return a test's place in the order, by its id: lower is earlier."""
    file = test.partition("::")[0]
    if group_of(file) in _TOGETHER:
        return 0
    folder = Path(file).parent.name
    order = (*_SLOW, *LONG)
    place = folder if folder in _SLOW else file
    return 1 + (order.index(place) if place in order else len(order))


def one_case(tests: Iterable[str]) -> set[str]:
    """Choose one case of every test.

    Which one depends on the test's name, so that other tests of the same cases have others.

    Args:
        tests: the ids of all cases.
    """
    cases: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        cases[test.partition("[")[0]].append(test)
    return {own[zlib.crc32(name.encode()) % len(own)] for name, own in cases.items()}
