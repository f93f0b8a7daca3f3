"""Order and group tests, and list those that cannot run on this machine; in CI they fail."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest
from support.groups import Groups, one_case, position

#: Real servers and a real browser, started by the first test that needs one.
pytest_plugins = ["support.services", "support.chromium", "support.lab"]

# No test asserts times: a busy machine takes longer.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-case",
        action="store_true",
        help="run one case of each test: enough to find calls that a library's version lacks",
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
        config.hook.pytest_deselected(items=[one for one in items if one.nodeid not in chosen])
        items[:] = [item for item in items if item.nodeid in chosen]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assign tests to workers by group."""
    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


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
    skipped = reporter is not None and reporter.stats.get("skipped")
    if os.environ.get("CI") and skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
