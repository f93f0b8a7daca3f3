"""Options and output that the commands with reports share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

from stallscope.errors import UsageError
from stallscope.reports import registry, write
from stallscope.reports.base import ReportOptions, ReportParts
from stallscope.reports.formats.terminal import terminal_summary

from .main import add_read_as

#: Where reports go without ``--out``.
REPORTS = Path("reports")


def add_arguments(
    parser: argparse.ArgumentParser, formats: Sequence[str] = registry.SEVERAL_RUNS
) -> None:
    """Add ``--out``, ``--format``, ``--force`` and ``--read-as``."""
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="folder to write to (default: reports/)"
    )
    parser.add_argument(
        "--format",
        metavar="LIST",
        help=f"comma-separated: {', '.join(formats)}; without it, a summary in the terminal",
    )
    parser.add_argument("--force", action="store_true", help="replace existing reports")
    add_read_as(parser)


def formats_of(
    options: argparse.Namespace, known: Sequence[str] = registry.SEVERAL_RUNS
) -> list[str]:
    """Return the requested formats; an empty list for a summary in the terminal.

    Raises:
        UsageError: if a format is unknown, or ``--out`` is given without a format.
    """
    if options.format:
        return registry.parse(options.format, known)
    if options.out is not None:
        raise UsageError(f"--out needs --format: say which of {', '.join(known)} to write")
    return []


def goes_to_standard_output(formats: Sequence[str], options: argparse.Namespace) -> bool:
    """Return whether only JSON is requested, without a folder; then nothing else is printed."""
    return list(formats) == ["json"] and options.out is None


def refuse_to_overwrite(stem: str, formats: Sequence[str], options: argparse.Namespace) -> None:
    """Check, before reading anything, that no existing file would be overwritten.

    Raises:
        WouldOverwriteError: if a file exists and ``--force`` is not given.
    """
    if not options.force and not goes_to_standard_output(formats, options):
        write.refuse_to_overwrite(_paths(stem, formats, options))


def show(
    stem: str, formats: Sequence[str], parts: ReportParts, options: argparse.Namespace
) -> None:
    """Output one report: a summary in the terminal, JSON on standard output, or files.

    Args:
        stem: the name that the files share.
        formats: the requested formats; empty for the summary.
        parts: the report.
        options: the command's options.
    """
    render = partial(
        registry.render, parts=parts, options=ReportOptions(generated_at=datetime.now(UTC))
    )
    if not formats:
        Console().print(terminal_summary(parts.document("terminal")))
    elif goes_to_standard_output(formats, options):
        sys.stdout.write(render("json"))
    else:
        paths = _paths(stem, formats, options)
        write.write_texts(paths, map(render, formats), options.out or REPORTS, options.force)
        for path in paths:
            print(path)


def _paths(stem: str, formats: Sequence[str], options: argparse.Namespace) -> list[Path]:
    return write.paths_of(stem, formats, options.out or REPORTS)


def print_array(documents: Sequence[Path]) -> None:
    """Print JSON documents as one array; only one document at a time is in memory."""
    sys.stdout.write("[")
    for number, path in enumerate(documents):
        sys.stdout.write(",\n" if number else "\n")
        sys.stdout.write(path.read_text().rstrip())
    sys.stdout.write("\n]\n")
