"""Remove collected runs from their store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.filesize import decimal

from stallscope.collector.catalogue.removing import Removable, removable, remove
from stallscope.errors import UsageError
from stallscope.wording.plain import plain

from .main import FAILED, FINE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="STORE#RUN_ID, or the folder of a collected run"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    # All of them, before anything is removed: a mistake in one word removes nothing.
    runs = {one.folder: one for one in map(removable, options.runs)}
    if not options.yes and not _agreed(list(runs.values())):
        print("nothing was removed", file=sys.stderr)
        return FAILED
    for one in runs.values():
        remove(one)
        print(f"{plain(str(one.folder))}: removed")
    return FINE


def _agreed(runs: Sequence[Removable]) -> bool:
    """Ask whoever sits at the terminal.

    Raises:
        UsageError: if nobody does.
    """
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked whether to remove the runs; --yes removes them")
    for one in runs:
        print(f"{plain(str(one.folder))}: {decimal(one.manifest.bytes)}", file=sys.stderr)
    print(f"Remove {len(runs)} run(s)? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
