"""Remove collected runs from their store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.filesize import decimal

from stallscope.catalogue.removing import Removable, removable, remove
from stallscope.collector.address import where_is
from stallscope.collector.store.mirror import Mirror, mirrored, place_for_mirrors
from stallscope.errors import NotFoundError, UsageError
from stallscope.formatting.plain import plain

from .main import FAILED, FINE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="STORE#RUN_ID, or the folder of a collected run"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    with place_for_mirrors() as folder:
        near = [_near(source, folder) for source in options.runs]
        # All of them, before anything is removed: a mistake in one word removes nothing.
        runs = {one.folder: one for one in map(removable, near)}
        if not options.yes and not _agreed(list(runs.values())):
            print("nothing was removed", file=sys.stderr)
            return FAILED
        for one in runs.values():
            _remove(one)
            print(f"{plain(where_is(one.folder))}: removed")
    return FINE


def _near(source: str, folder: Path) -> str:
    """A RUN of a folder as it is, and one of a URL in the store's mirror."""
    place, mark, run_id = source.partition("#")
    if "://" not in place:
        return source
    found = mirrored(place, folder)
    if found is None:
        raise NotFoundError(f"{source}: nothing is collected there")
    return f"{found}{mark}{run_id}"


def _remove(run: Removable) -> None:
    mirror = Mirror.of(run.folder.parent)
    if mirror is None:
        remove(run)
    else:
        mirror.remove(run.folder.name)


def _agreed(runs: Sequence[Removable]) -> bool:
    """Ask the user at the terminal.

    Raises:
        UsageError: if there is no terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            "not in a terminal, so the removal cannot be confirmed; --yes removes the runs"
        )
    for one in runs:
        print(f"{plain(where_is(one.folder))}: {decimal(one.manifest.bytes)}", file=sys.stderr)
    print(f"Remove {len(runs)} run(s)? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
