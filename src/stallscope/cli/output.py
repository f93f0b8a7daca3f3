"""What the commands that report share: what is written, and where to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console, RenderableType

from stallscope.errors import UsageError
from stallscope.reports import registry, write

#: Where reports go without ``--out``.
REPORTS = Path("reports")


def add_arguments(
    parser: argparse.ArgumentParser, formats: Sequence[str] = registry.DOCUMENTS
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


def formats_of(options: argparse.Namespace, known: Sequence[str] = registry.DOCUMENTS) -> list[str]:
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


def show(
    stem: str,
    formats: Sequence[str],
    render: Callable[[str], str],
    summary: Callable[[], RenderableType],
    options: argparse.Namespace,
) -> None:
    """One document as it was asked for: a summary in the terminal, JSON on standard output, or files.

    Args:
        stem: the name that the files share.
        formats: those that were asked for; none for the summary.
        render: gives the document in a format.
        summary: gives what a terminal shows.
        options: of the command.
    """
    if not formats:
        Console().print(summary())
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
