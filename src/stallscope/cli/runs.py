"""List the runs that were collected into a store."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stallscope.catalogue import Baselines, Catalogue, Entry, Filter, parse_where
from stallscope.catalogue.entry import SHARES
from stallscope.catalogue.index import is_store
from stallscope.collector.address import address, where_is
from stallscope.collector.store.layout import MANIFEST
from stallscope.errors import NotFoundError, UsageError
from stallscope.formatting.plain import plain

from .main import SUCCESS
from .runs_table import COLUMNS, parse_columns, print_table

# More rows are hard to read; JSON lists all runs.
_LINES = 50
_PLACES_SHOWN = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "store",
        nargs="?",
        metavar="WHERE",
        default=".",
        help="a store: a folder that runs were collected into (this one), or a URL",
    )
    parser.add_argument(
        "--where",
        metavar="FILTER",
        default="",
        help="only matching runs: 'model=resnet50 (ranks>=8 or verdict=input)'",
    )
    parser.add_argument(
        "--sort",
        metavar="FIELD",
        default="age",
        help="numbers from the largest, times from the newest, text from A (age)",
    )
    parser.add_argument("--reverse", action="store_true", help="reverse the order")
    parser.add_argument(
        "--limit", metavar="N", type=int, help=f"at most this many runs ({_LINES}; in JSON all)"
    )
    parser.add_argument(
        "--columns",
        metavar="LIST",
        help=f"only these columns, in this order: {','.join(COLUMNS)} (as many as fit)",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="(table)")
    parser.add_argument(
        "--json",
        action="store_const",
        const="json",
        dest="format",
        help="the same as --format json",
    )


def run(options: argparse.Namespace) -> int:
    where = parse_where(options.where)
    columns = None if options.columns is None else parse_columns(options.columns)
    limit = _limit(options.limit, options.format == "json")
    with _local_store(options.store) as store:
        return _run(options, store, where, limit, columns)


@contextmanager
def _local_store(place: str) -> Iterator[Path]:
    """Return the store's folder; for a URL, the folder of a local mirror."""
    if "://" not in place:
        yield Path(place)
        return
    # Importing the URL libraries takes longer than listing a folder.
    from stallscope.collector.store.mirror import Mirror, temporary_mirrors

    with temporary_mirrors() as folder:
        mirror = Mirror.create(folder / "store", place)
        mirror.update_all()
        yield mirror.folder


def _run(
    options: argparse.Namespace,
    store: Path,
    where: Filter,
    limit: int | None,
    columns: Sequence[str] | None,
) -> int:
    if not is_store(store):
        raise NotFoundError(_no_runs(store))
    with Catalogue.open(store) as catalogue:
        entries = catalogue.entries(where, options.sort, reverse=options.reverse, limit=limit)
        baselines = Baselines(catalogue)
        found = [baselines.of(entry) for entry in entries]
        of_all = len(entries) if limit is None else catalogue.count(where)
        problems = catalogue.problems
    if options.format == "json":
        _print_json(
            _document(store, entry, baseline)
            for entry, baseline in zip(entries, found, strict=True)
        )
    else:
        print_table(entries, found, of_all, columns)
    for problem in problems:
        message = plain(problem).replace(str(store), where_is(store))
        print(f"stallscope: {message}", file=sys.stderr)
    return SUCCESS


def _limit(given: int | None, is_json: bool) -> int | None:
    if given is None:
        return None if is_json else _LINES
    if given < 0:
        raise UsageError(f"--limit {given}: give a number of runs")
    return given


def _no_runs(store: Path) -> str:
    """Say that there are no runs here, and name stores nearby."""
    if "://" in address(store):
        return f"{where_is(store)}: no runs were collected to this URL"
    if not store.is_dir():
        return f"{store}: no such folder"
    if (store / MANIFEST).is_file():
        return f"{store}: this is one collected run; its store is {store.absolute().parent}"
    near = [folder for folder in sorted(_near(store)) if is_store(folder)][:_PLACES_SHOWN]
    hint = f"; there are some in {', '.join(map(str, near))}" if near else ""
    return f"{store}: no runs were collected into this folder{hint}"


def _near(store: Path) -> list[Path]:
    """Return the usual places of stores: subfolders, and the demo's own."""
    below = [item for item in store.iterdir() if item.is_dir() and not item.name.startswith(".")]
    return [*below, store / ".stallscope" / "demo"]


def _print_json(documents: Iterable[Mapping[str, Any]]) -> None:
    # An object per line: a long list is written ten times as fast as with indents.
    lines = ",\n".join(json.dumps(document, allow_nan=False) for document in documents)
    print(f"[\n{lines}\n]" if lines else "[]")


def _document(store: Path, entry: Entry, baseline: Entry | None) -> dict[str, Any]:
    summary = entry.summary
    return {
        "id": entry.id,
        "name": entry.name,
        "path": where_is(store / entry.folder),
        "source": entry.source,
        "framework": entry.framework,
        "versions": _texts(entry.facts.get("versions")),
        "model": entry.model,
        "ranks": entry.ranks,
        "hosts": entry.hosts,
        "steps": summary.steps,
        "epochs": summary.epochs,
        "batch_size": entry.batch_size,
        "synthetic": entry.synthetic,
        "status": entry.status,
        "started_at": entry.started_at,
        "collected_at": entry.collected_at,
        "bytes": entry.bytes,
        "samples_per_second": summary.samples_per_second,
        "step_ms": summary.step_ms,
        "verdict": summary.verdict,
        "cause": summary.cause,
        "fault": summary.fault,
        "goodput": summary.goodput,
        "named_ranks": summary.named_ranks,
        "named_hosts": summary.named_hosts,
        "shares": {name: summary.shares.get(name) for name in SHARES},
        "baseline": None if baseline is None else baseline.id,
    }


def _texts(versions: object) -> dict[str, str]:
    # A log may record any value as its versions.
    items = versions.items() if isinstance(versions, Mapping) else ()
    return {str(name): str(value) for name, value in items}
