"""What could not be tested on this machine is said by name at the end; in CI that is a failure."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import hypothesis
import pytest

#: Compiled for a Python that few have any more: missing it fails no CI.
OPTIONAL = ".venv-mxnet"

#: Real servers, started when the first test asks for one.
pytest_plugins = ["support.services"]

# Nothing is asserted about time: a busy machine takes longer.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers side by side: one has all tests that talk to servers, which start once and mostly wait,
    another all that look at pages, as two browsers at a time are slow; of the others every file is one
    worker's, and those that take longest begin first."""
    group_of: dict[Path, str] = {}
    for name in ("browser", "services"):
        group_of |= {item.path: name for item in items if item.get_closest_marker(name)}

    def turn(item: pytest.Item) -> int:
        starts_processes = item.path.parent.name in ("cli", "batch")
        return 0 if item.path in group_of else 1 if starts_processes else 2

    items.sort(key=turn)
    for item in items:
        alone = str(item.path.relative_to(item.config.rootpath))
        item.add_marker(pytest.mark.xdist_group(group_of.get(item.path, alone)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missed: dict[str, list[str]] = defaultdict(list)
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        missed[reason.removeprefix("Skipped: ")].append(report.nodeid)
    if missed:
        terminalreporter.section("not tested on this machine")
        for reason, tests in missed.items():
            files = sorted({test.split("::")[0] for test in tests})
            terminalreporter.line(f"{reason}: {len(tests)} test(s) in {', '.join(files)}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None:
        skipped = reporter.stats.get("skipped", [])
        if any(OPTIONAL not in str(report.longrepr) for report in skipped):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
