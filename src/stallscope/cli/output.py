"""Options and output that the commands with reports share, and opening the runs that they name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from stallscope.collector.run_names import RunAddress
from stallscope.errors import StallscopeError, UsageError
from stallscope.opening import open_run, open_runs, place_warnings
from stallscope.reports import report_formats, write
from stallscope.reports.formats.terminal import terminal_summary
from stallscope.reports.report_formats import ReportOptions, ReportParts
from stallscope.run import Run

from .main import add_read_as, print_warnings
from .progress_bars import show_progress

#: Where reports go without ``--out``.
REPORTS = Path("reports")

T = TypeVar("T")


def add_arguments(
    parser: argparse.ArgumentParser, formats: Sequence[str] = report_formats.SEVERAL_RUNS
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
    options: argparse.Namespace, known: Sequence[str] = report_formats.SEVERAL_RUNS
) -> list[str]:
    """Return the requested formats; an empty list for a summary in the terminal.

    Raises:
        UsageError: if a format is unknown, or ``--out`` is given without a format.
    """
    if options.format:
        return report_formats.parse(options.format, known)
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
        report_formats.render, parts=parts, options=ReportOptions(generated_at=datetime.now(UTC))
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


# -- Open the runs that a command names, and show progress ----------------------------------------


def open_all(
    sources: Sequence[str | RunAddress], read_as: str | None
) -> tuple[list[Run], list[str]]:
    """Return the runs of all sources, and an error message for every source that cannot be read.

    What is in none of their runs is printed.
    """
    runs: list[Run] = []
    failures: list[str] = []
    for source in with_progress(sources, "reading"):
        try:
            runs += open_runs(source, read_as=read_as, show_progress=show_progress)
        except StallscopeError as error:
            failures.append(str(error))
    print_warnings(place_warnings(runs))
    return runs, failures


def open_one(source: str, read_as: str | None = None, known: Iterable[str] = ()) -> Run:
    """Return the one run of a source, and print what is not in it.

    Args:
        known: warnings that were printed.

    Raises:
        StallscopeError: see ``open_run``.
    """
    with show_progress("reading", 1):
        run = open_run(source, read_as=read_as, show_progress=show_progress)
    print_warnings([warning for warning in run.place_warnings if warning not in known])
    return run


def with_progress(items: Sequence[T], label: str) -> Iterable[T]:
    """Yield the items, and show progress on a terminal's standard error."""
    with show_progress(label, len(items)) as update:
        for done, item in enumerate(items):
            update(done)
            yield item
