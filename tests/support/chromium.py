"""Run Debian's Chromium with Playwright: one browser for all tests, separate pages for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from .needing import need

# A browser in a test must not send requests by itself, or need a GPU or a sandbox, which containers
# lack.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # This replaces Playwright's own list. The first line repeats it. The second line turns off an
    # address bar for which each window starts another process.
    "--disable-features="
    "AimEnabled,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,PaintHolding,PreconnectToSearch,ThirdPartyStoragePartitioning,"
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Run a browser; without one the test is skipped, and in CI it fails.

    Playwright's event loop runs in the main thread from then on: ``asyncio.run`` does not work
    there.
    """
    # The headless shell takes a tenth less CPU time in these tests.
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    need(program, "there is no Chromium: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield browser
        browser.close()
