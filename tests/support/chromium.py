"""Run Debian's Chromium with Playwright: one browser for all tests, separate pages for each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

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
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Run a browser with a profile folder, in which it caches compiled scripts.

    Without a browser the test is skipped, and in CI it fails. Playwright's event loop runs in the main
    thread from then on: ``asyncio.run`` does not work there.
    """
    # The headless shell takes a tenth less CPU time in these tests.
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    need(program, "there is no Chromium: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("browser"), executable_path=program, args=_ARGUMENTS
        )
        yield context
        context.close()


@pytest.fixture(scope="session")
def browser(context: BrowserContext) -> Browser:
    """Return the browser, for contexts with settings of their own."""
    assert context.browser is not None
    return context.browser
