"""List the runs that were collected into a store."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stallscope.catalogue.index import Catalogue
from stallscope.catalogue.listing import entry_content, local_store
from stallscope.catalogue.matching import Baselines
from stallscope.catalogue.where import Filter, parse_where
from stallscope.collector.address import where_is
from stallscope.errors import UsageError
from stallscope.formatting.plain import plain

from .main import SUCCESS
from .runs_table import COLUMNS, parse_columns, print_table

# More rows are hard to read; JSON lists all runs.
_LINES = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "store",
        nargs="?",
        metavar="STORE",
        default=".",
        help="a folder that runs were collected into, or its URL (default: this folder)",
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
        help="numbers from the largest, times from the newest, text from A (default: age)",
    )
    parser.add_argument("--reverse", action="store_true", help="reverse the order")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=int,
        help=f"at most this many runs (default: {_LINES}; in JSON all)",
    )
    parser.add_argument(
        "--columns",
        metavar="LIST",
        help=f"only these columns, in this order: {','.join(COLUMNS)}, or fields of --where (default: "
        "as many as fit)",
    )
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="default: table"
    )
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
    with local_store(options.store) as store:
        return _run(options, store, where, limit, columns)


def _run(
    options: argparse.Namespace,
    store: Path,
    where: Filter,
    limit: int | None,
    columns: Sequence[str] | None,
) -> int:
    with Catalogue.open(store) as catalogue:
        entries = catalogue.entries(where, options.sort, reverse=options.reverse, limit=limit)
        baselines = Baselines(catalogue)
        baseline_entries = [baselines.of(entry) for entry in entries]
        of_all = len(entries) if limit is None else catalogue.count(where)
        problems = catalogue.problems
    if options.format == "json":
        _print_json(
            entry_content(store, entry, baseline)
            for entry, baseline in zip(entries, baseline_entries, strict=True)
        )
    elif not of_all and options.where:
        print(f"no run matches --where {plain(options.where)}")
    else:
        print_table(entries, baseline_entries, of_all, columns)
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


def _print_json(documents: Iterable[Mapping[str, Any]]) -> None:
    # An object per line: a long list is written ten times as fast as with indents.
    lines = ",\n".join(json.dumps(document, allow_nan=False) for document in documents)
    print(f"[\n{lines}\n]" if lines else "[]")
