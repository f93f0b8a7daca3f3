"""What the commands that report share: what is written, and where to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from stallscope.errors import UsageError
from stallscope.reports import registry

#: Where reports go unless ``--out`` says otherwise.
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


def goes_to_standard_output(formats: list[str], options: argparse.Namespace) -> bool:
    """Whether JSON alone was asked for, and no folder named: then nothing else is printed."""
    return formats == ["json"] and options.out is None


def print_array(documents: Sequence[Path]) -> None:
    """Documents of JSON as one array on standard output, none of which is held."""
    sys.stdout.write("[")
    for number, path in enumerate(documents):
        sys.stdout.write(",\n" if number else "\n")
        sys.stdout.write(path.read_text())
    sys.stdout.write("\n]\n")
