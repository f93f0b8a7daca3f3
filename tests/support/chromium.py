"""Debian's Chromium, driven by Playwright: one for all tests, each with pages of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

# What a browser in a test must not do: ask for things of its own, or want a GPU or a sandbox that
# containers do not have.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A running browser; without one the test is skipped, and in CI it fails.

    Playwright's event loop runs in the main thread from then on: ``asyncio.run`` does not work there.
    """
    program = shutil.which("chromium")
    if program is None:
        reason = "there is no Chromium to look through: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        yield browser
        browser.close()
