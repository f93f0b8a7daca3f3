"""Append reports to the job summaries of GitHub Actions."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from stallscope.errors import UnwritableError, UsageError

_VARIABLE = "GITHUB_STEP_SUMMARY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--github-summary",
        action="store_true",
        help=f"add the report, or the index of several, to the job summary ({_VARIABLE})",
    )


def check(options: argparse.Namespace) -> None:
    """Check that the command runs in a job of GitHub Actions.

    Raises:
        UsageError: if it does not, and ``--github-summary`` is given.
    """
    if options.github_summary and not os.environ.get(_VARIABLE):
        raise UsageError(
            f"--github-summary: {_VARIABLE} is not set; GitHub Actions sets it for every step"
        )


def append(markdown: str) -> None:
    """Append Markdown to the summary of the job.

    Raises:
        UnwritableError: if the file cannot be written.
    """
    path = Path(os.environ[_VARIABLE])
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{markdown}\n")
    except OSError as error:
        raise UnwritableError(
            f"{path}: the summary cannot be written ({error.strerror})"
        ) from error
