"""Remove collected runs from their store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.filesize import decimal

from stallscope.catalogue.checking import Removable, removable, remove
from stallscope.collector.run_names import RunAddress
from stallscope.collector.store.layout import where_is
from stallscope.collector.store.mirror import Mirror, open_mirror, temporary_mirrors
from stallscope.errors import NotFoundError, UsageError
from stallscope.formatting.lists import counted
from stallscope.formatting.plain import plain

from .main import FAILED, SUCCESS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="STORE#RUN_ID, or the folder of a collected run"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    with temporary_mirrors() as folder:
        local = [_local_run(source, folder) for source in options.runs]
        # Check all of them before removing anything.
        runs = {run.folder: run for run in map(removable, local)}
        if not options.yes and not _confirmed(list(runs.values())):
            print("nothing was removed", file=sys.stderr)
            return FAILED
        for run in runs.values():
            _remove(run)
            print(f"{plain(where_is(run.folder))}: removed")
    return SUCCESS


def _local_run(source: str, folder: Path) -> RunAddress:
    """Return the address of a RUN; of one at a URL, that in the store's mirror."""
    address = RunAddress.parse(source)
    if "://" not in address.place:
        return address
    mirror = open_mirror(address.place, folder)
    if mirror is None:
        raise NotFoundError(f"{source}: there are no collected runs")
    return address._replace(place=str(mirror))


def _remove(run: Removable) -> None:
    mirror = Mirror.of(run.folder.parent)
    if mirror is None:
        remove(run)
    else:
        mirror.remove(run.folder.name)


def _confirmed(runs: Sequence[Removable]) -> bool:
    """Ask the user to confirm the removal.

    Raises:
        UsageError: if there is no terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            "not in a terminal, so the removal cannot be confirmed; --yes removes the runs"
        )
    for run in runs:
        print(f"{plain(where_is(run.folder))}: {decimal(run.manifest.bytes)}", file=sys.stderr)
    print(f"Remove {counted(len(runs), 'run')}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
