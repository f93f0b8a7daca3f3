"""Make the tests' folders; list the tests that cannot run on this machine: in CI they fail."""

from __future__ import annotations

import gc
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

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
# Most defects fail an early example, and make test tries all.
hypothesis.settings.register_profile("few", deadline=None, max_examples=20)


#: The next number of a test's folder, by the start of its name.
_NUMBERS: dict[str, Iterator[int]] = defaultdict(itertools.count)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an empty folder with the test's name and a number.

    For each test pytest's own fixture lists all folders of the run, and replaces a link to the last one
    of that name: ext4 deletes a link of this length only after a commit to the disk.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{name}_{next(_NUMBERS[name])}"
    folder.mkdir(mode=0o700)
    return folder


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("one_case"):
        hypothesis.settings.load_profile("few")


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
