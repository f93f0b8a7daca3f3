"""Assign tests to parallel workers in groups, order them, and choose one case of each.

One worker gets all tests of servers, which start once and mostly wait. Another gets all tests of pages,
as two browsers at a time are slow, and another all tests that read the cases of one launch of ranks. All
tests of reports are one group, as they share the analyses that they report on. The tests of any other
file stay together, as they share fixtures.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

_ROOT = Path(__file__).parents[2]
#: All files with one of these markers are one group: a file with several belongs to the first.
_TOGETHER = ("services", "browser", "cases")
#: Folders that are one group.
_SHARING = ("reports",)
#: Folders with the longest groups, and with tests that start processes: Spark's take minutes.
_SLOW = ("spark", *_SHARING, "cli", "batch")
#: The longest file of the others: as the last one it would leave workers idle.
_LONG_FILE = "tests/parsers/test_contract.py"
#: Files in which ranks train longest, in this order: a long one at the end would leave a worker idle.
LONG = tuple(
    f"tests/training/test_{name}.py"
    for name in (
        *("generations", "unedited", "cluster", "launch_scripts", "netcheck", "sharded"),
        *("deepspeed", "torch_ranks", "hugging_face", "pipeline_figures", "iterable_sources"),
        *("end_summary", "hangs", "ray", "recorder_pages", "keras3", "measure_input"),
        *("lightning", "megatron", "fsdp", "failures", "loader_figures", "timelines", "tutorial"),
    )
)


@cache
def group_of(file: str) -> str:
    """Return the group of a file's tests.

    It reads the file's text: the scheduler does not know the markers of tests.

    Args:
        file: relative to the repository's root, as in the ids of its tests.
    """
    text = (_ROOT / file).read_text("utf-8")
    folder = Path(file).parent.name
    shared = folder if folder in _SHARING else file
    return next((name for name in _TOGETHER if f"pytest.mark.{name}" in text), shared)


class Groups(LoadScopeScheduling):
    """Assign whole groups to workers.

    xdist's own groups are marks that it appends to the ids of tests. From pytest 9.2 on ids cannot be
    changed, and each test would go to any free worker.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])


def position(test: str) -> int:
    """Return a test's position in the order, by its id: lower is earlier."""
    return _position_of(test.partition("::")[0])


@cache
def _position_of(file: str) -> int:
    if group_of(file) in _TOGETHER:
        return 0
    folder = Path(file).parent.name
    order = (*_SLOW, _LONG_FILE, *LONG)
    place = folder if folder in _SLOW else file
    return 1 + (order.index(place) if place in order else len(order))


def one_case(tests: Iterable[str]) -> set[str]:
    """Choose one case of every test.

    The choice depends on the test's name, so that tests with the same cases run different ones.

    Args:
        tests: the ids of all cases.
    """
    cases: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        cases[test.partition("[")[0]].append(test)
    return {variants[zlib.crc32(name.encode()) % len(variants)] for name, variants in cases.items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-case",
        action="store_true",
        help="run one case and few examples of each test: enough to find calls that a library's "
        "version lacks",
    )


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Start the longest tests first; choose one case of each selected test."""
    items.sort(key=lambda item: position(item.nodeid))
    yield
    if config.getoption("one_case"):
        chosen = one_case([item.nodeid for item in items])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
        items[:] = [item for item in items if item.nodeid in chosen]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assign tests to workers by group."""
    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None
