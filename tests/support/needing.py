"""Skip tests that this machine cannot run."""

from __future__ import annotations

import os

import pytest


def need(available: object, reason: str) -> None:
    """Skip a test unless the machine has what it needs; in CI it fails.

    Args:
        available: what the test needs; a false value if it is missing.
        reason: what is missing, and how to get it.
    """
    if available:
        return
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
