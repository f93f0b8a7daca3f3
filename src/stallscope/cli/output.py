"""What the commands that report share: what is written, and where to."""

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
from stallscope.reports.base import Parts, ReportOptions
from stallscope.reports.formats.terminal import terminal_summary

#: Where reports go without ``--out``.
REPORTS = Path("reports")


def add_arguments(
    parser: argparse.ArgumentParser, formats: Sequence[str] = registry.SEVERAL_RUNS
) -> None:
    """``--out``, ``--format``, ``--force`` and ``--read-as``."""
    parser.add_argument("--out", metavar="DIR", type=Path, help="where to write (reports/)")
    parser.add_argument(
        "--format",
        metavar="LIST",
        help=f"comma-separated: {', '.join(formats)}; without it, a summary in the terminal",
    )
    parser.add_argument("--force", action="store_true", help="replace reports that are there")
    parser.add_argument(
        "--read-as", metavar="NAME", help="the parser to use, whatever it looks like"
    )


def formats_of(
    options: argparse.Namespace, known: Sequence[str] = registry.SEVERAL_RUNS
) -> list[str]:
    """The formats that were asked for; none for a summary in the terminal.

    Raises:
        UsageError: if one of them is no format, or there is a folder for none.
    """
    if options.format:
        return registry.parse(options.format, known)
    if options.out is not None:
        raise UsageError(f"--out needs --format: say which of {', '.join(known)} to write")
    return []


def goes_to_standard_output(formats: Sequence[str], options: argparse.Namespace) -> bool:
    """Whether JSON alone was asked for, and no folder named: then nothing else is printed."""
    return list(formats) == ["json"] and options.out is None


def refuse_to_overwrite(stem: str, formats: Sequence[str], options: argparse.Namespace) -> None:
    """Ask before anything is read whether a document can be written.

    Raises:
        WouldOverwriteError: if a file of it is there already, and may not be replaced.
    """
    if not options.force and not goes_to_standard_output(formats, options):
        write.refuse_to_overwrite(_paths(stem, formats, options))


def show(stem: str, formats: Sequence[str], parts: Parts, options: argparse.Namespace) -> None:
    """Show a report as the user asked: in the terminal, as JSON on standard output, or as files.

    Args:
        stem: the name that the files share.
        formats: the requested formats; none for the terminal.
        parts: the report.
        options: of the command.
    """
    render = partial(
        registry.render, parts=parts, options=ReportOptions(generated_at=datetime.now(UTC))
    )
    if not formats:
        Console().print(terminal_summary(parts.document()))
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
    """Documents of JSON as one array on standard output, none of which is held."""
    sys.stdout.write("[")
    for number, path in enumerate(documents):
        sys.stdout.write(",\n" if number else "\n")
        sys.stdout.write(path.read_text())
    sys.stdout.write("\n]\n")
