"""List the tests that cannot run on this machine; in CI they fail."""

from __future__ import annotations

import gc
import os
from collections import defaultdict

import hypothesis
import pytest

# Thousands of tests and what they import stay to the end: no search for garbage goes through them.
gc.disable()

# A failed check in these says what it has found, as those of tests do.
pytest.register_assert_rewrite("support", "training")

#: The order of tests; real servers and a real browser, started by the first test that needs one.
pytest_plugins = ["support.groups", "support.services", "support.chromium", "support.lab"]

# No test asserts times: a busy machine takes longer.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


# The process that only assigns tests to workers collects none, but calls this, too.
@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


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
