"""Say what a machine lacks for a test."""

from __future__ import annotations

import os

import pytest


def need(there: object, reason: str) -> None:
    """Skip a test that this machine cannot run; in CI it fails.

    Args:
        there: what the test needs; a false value if it is missing.
        reason: what is missing, and how to get it.
    """
    if there:
        return
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
