"""List the runs that were collected into a store."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from stallscope.catalogue import Baselines, Catalogue, Entry, Filter, parse_where
from stallscope.catalogue.entry import CAUSES, SHARES
from stallscope.catalogue.index import is_store
from stallscope.charts.palette import COLOURS
from stallscope.collector.address import address, where_is
from stallscope.collector.store.layout import MANIFEST
from stallscope.errors import NotFoundError, UsageError
from stallscope.formatting.numbers import percent, significant
from stallscope.formatting.plain import plain
from stallscope.text.recorded import age

from .main import SUCCESS

# More rows are hard to read; JSON lists all runs.
_LINES = 50
_BAR_CELLS = 10
_COLUMNS = (
    "run",
    "ranks",
    "steps",
    "samples/s",
    "goodput",
    "verdict",
    "step",
    "baseline",
    "size",
    "age",
)
# A terminal of this width has space between the columns.
_WIDE = 100
# Each cause has its own pattern, for terminals and readers that cannot tell the colours apart.
_BLOCKS = dict(zip(CAUSES, "█▓░▒", strict=True))
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
        "--limit", metavar="N", type=int, help=f"at most this many runs ({_LINES}; with --json all)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array of objects")


def run(options: argparse.Namespace) -> int:
    where = parse_where(options.where)
    limit = _limit(options.limit, options.json)
    with _local_store(options.store) as store:
        return _run(options, store, where, limit)


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


def _run(options: argparse.Namespace, store: Path, where: Filter, limit: int | None) -> int:
    if not is_store(store):
        raise NotFoundError(_no_runs(store))
    with Catalogue.open(store) as catalogue:
        entries = catalogue.entries(where, options.sort, reverse=options.reverse, limit=limit)
        baselines = Baselines(catalogue)
        found = [baselines.of(entry) for entry in entries]
        of_all = len(entries) if limit is None else catalogue.count(where)
        problems = catalogue.problems
    if options.json:
        _print_json(
            _document(store, entry, baseline)
            for entry, baseline in zip(entries, found, strict=True)
        )
    else:
        _print_table(entries, found, of_all)
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


def _print_table(entries: Sequence[Entry], found: Sequence[Entry | None], of_all: int) -> None:
    if not of_all:
        print("no runs")
        return
    console = Console()
    gap = 2 if console.width >= _WIDE else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    # A narrow terminal has no space for it.
    shown = [title for title in _COLUMNS if title != "goodput" or console.width >= _WIDE]
    for title in shown:
        # In a narrow terminal text columns shrink; a truncated figure would be wrong.
        shrinks = title in ("run", "verdict", "baseline")
        table.add_column(
            title,
            justify="left" if shrinks or title == "step" else "right",
            no_wrap=not shrinks,
            min_width=len(title) if shrinks else None,
        )
    now = datetime.now(UTC)
    for entry, baseline in zip(entries, found, strict=True):
        cells = dict(zip(_COLUMNS, _cells(entry, baseline, now), strict=True))
        table.add_row(*(cells[title] for title in shown))
    console.print(table)
    console.print(_legend())
    if of_all > len(entries):
        console.print(
            Text(f"{len(entries):,} of {of_all:,} runs; --limit {of_all} shows all", style="dim")
        )


def _cells(entry: Entry, baseline: Entry | None, now: datetime) -> list[Text]:
    summary = entry.summary
    found = "is one" if entry.synthetic else "" if baseline is None else baseline.name
    return [
        _line(_title(entry)),
        Text(f"{entry.ranks:,}"),
        Text("" if summary.steps is None else f"{summary.steps:,}"),
        Text("" if summary.samples_per_second is None else significant(summary.samples_per_second)),
        Text("" if summary.goodput is None else percent(summary.goodput)),
        _line(_verdict(entry)),
        _bar(summary.shares),
        _line(found),
        Text(decimal(entry.bytes, precision=0)),
        Text(age(entry.began, now)),
    ]


def _line(text: str) -> Text:
    """Return text from logs as one line without markup."""
    return Text(plain(text), no_wrap=True, overflow="ellipsis")


def _title(entry: Entry) -> str:
    """Return the name and, for use in commands, the id."""
    return entry.id if entry.name == entry.id else f"{entry.name} #{entry.id}"


def _verdict(entry: Entry) -> str:
    """Return the verdict as filters take it, with the slow ranks; or "no fault"."""
    summary = entry.summary
    if summary.verdict is None:
        return "not analysed"
    if summary.fault is False and summary.verdict != "insufficient_data":
        return "no fault"
    named = [str(rank) for rank in summary.named_ranks]
    if named:
        return f"{'rank' if len(named) == 1 else 'ranks'} {', '.join(named)}: {summary.verdict}"
    return summary.verdict


def _bar(shares: Mapping[str, float]) -> Text:
    """Draw the share of each cause in a step as a bar."""
    if not shares:
        return Text()
    lengths = _apportion([max(shares.get(name, 0.0), 0.0) for name in CAUSES])
    bar = Text()
    for name, length in zip(CAUSES, lengths, strict=True):
        bar.append(_BLOCKS[name] * length, style=COLOURS[name].light)
    return bar


def _apportion(shares: Sequence[float]) -> list[int]:
    """Distribute a fixed number of cells by share: round up the largest remainders."""
    whole = sum(shares)
    if not whole:
        return [0] * len(shares)
    exact = [share / whole * _BAR_CELLS for share in shares]
    lengths = [int(length) for length in exact]
    rest = sorted(range(len(exact)), key=lambda index: lengths[index] - exact[index])
    for index in rest[: _BAR_CELLS - sum(lengths)]:
        lengths[index] += 1
    return lengths


def _legend() -> Text:
    legend = Text("step: ", style="dim")
    for name in CAUSES:
        legend.append(_BLOCKS[name], style=COLOURS[name].light)
        legend.append(f" {name}  ")
    return legend
