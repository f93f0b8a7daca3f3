"""Job summaries of GitHub Actions."""

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


def checked(options: argparse.Namespace) -> None:
    """
    Raises:
        UsageError: if there is no job whose summary it could be.
    """
    if options.github_summary and not os.environ.get(_VARIABLE):
        raise UsageError(
            f"--github-summary: {_VARIABLE} is not set; GitHub Actions sets it for every step"
        )


def append(markdown: str) -> None:
    """Add Markdown to what earlier steps of the job have written.

    Raises:
        UnwritableError: if the file does not take it.
    """
    path = Path(os.environ[_VARIABLE])
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{markdown}\n")
    except OSError as error:
        raise UnwritableError(
            f"{path}: the summary cannot be written ({error.strerror})"
        ) from error
