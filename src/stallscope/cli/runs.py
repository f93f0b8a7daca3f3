"""List the runs that were collected into a store."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from stallscope.catalogue.entry import Entry
from stallscope.catalogue.index import Catalogue
from stallscope.catalogue.listing import Baselines, entry_content, local_store
from stallscope.catalogue.where import FIELDS, Filter, parse_where
from stallscope.charts import COLOURS
from stallscope.collector.run_names import NamedRun
from stallscope.collector.store.layout import where_is
from stallscope.conditions.language import find
from stallscope.errors import UsageError
from stallscope.formatting.numbers import age, percent, significant
from stallscope.formatting.plain import did_you_mean, plain
from stallscope.text.vocabulary import short_title
from stallscope.words import CAUSES, VERDICT_CAUSES, VERDICTS, known

from .main import SUCCESS

# More rows are hard to read; JSON lists all runs.
_LINES = 50

COLUMNS = (
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
# The order in which columns are left out if they do not fit.
_LEFT_OUT_FIRST = ("goodput", "size", "baseline", "step", "samples/s", "steps", "age", "ranks")
_TEXTS = ("run", "verdict", "baseline", "step")
# Longer names are cut in a table that does not fit: they would displace all other columns.
_LONGEST_NAME = 32
# A terminal of this width has space between the columns.
_WIDE = 100
# Output into a file or a program has no width.
_ENDLESS = 100_000
_BAR_CELLS = 10
# Each cause has its own pattern, for terminals without colours and colour-blind readers.
_BLOCKS = dict(zip(CAUSES, "█▓░▒", strict=True))


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


# -- Print runs as a table that fits the terminal -------------------------------------------------
#
# Columns are left out, and only long names are cut.


def parse_columns(text: str) -> list[str]:
    """Parse the value of ``--columns``: columns of the table, and fields of ``--where``.

    Raises:
        UsageError: if there is no such column.
    """
    columns = [name.strip() for name in text.split(",") if name.strip()]
    for name in columns:
        if name not in COLUMNS and find(FIELDS, name) is None:
            known = list(dict.fromkeys([*COLUMNS, *FIELDS]))
            hint = did_you_mean(name, known, f"there are {', '.join(known)}")
            raise UsageError(f'--columns: no such column: "{name}"; {hint}')
    return columns or [*COLUMNS]


def print_table(
    entries: Sequence[Entry],
    baselines: Sequence[Entry | None],
    of_all: int,
    columns: Sequence[str] | None = None,
) -> None:
    """Print the runs.

    Args:
        baselines: of each run.
        of_all: the number of runs that could be shown.
        columns: those to show; default: as many as fit.
    """
    if not of_all:
        print("no runs")
        return
    console = _console()
    now = datetime.now(UTC)
    further = [name for name in columns or () if name not in COLUMNS]
    rows = [
        dict(zip(COLUMNS, _cells(entry, baseline, now), strict=True))
        | {name: _field_cell(name, entry) for name in further}
        for entry, baseline in zip(entries, baselines, strict=True)
    ]
    gap = 2 if console.width >= _WIDE else 1
    if _width(rows, columns or COLUMNS, gap) > console.width:
        for row, entry in zip(rows, entries, strict=True):
            row["run"] = _text(_short_title(entry))
            row["baseline"] = _text(_middle_cut(row["baseline"].plain, _LONGEST_NAME))
    shown = list(columns or _fitting(rows, console.width, gap))
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for title in shown:
        table.add_column(title, justify="left" if _is_text(title) else "right", overflow="fold")
    for row in rows:
        table.add_row(*(row[title] for title in shown))
    console.print(table)
    if "step" in shown:
        console.print(_legend())
    left_out = [title for title in COLUMNS if title not in shown]
    if left_out and columns is None:
        console.print(Text(f"more --columns: {', '.join(left_out)}", style="dim"))
    if of_all > len(entries):
        console.print(
            Text(f"{len(entries):,} of {of_all:,} runs; --limit {of_all} shows all", style="dim")
        )


def _console() -> Console:
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _ENDLESS
    return console


def _fitting(rows: Sequence[Mapping[str, Text]], width: int, gap: int) -> list[str]:
    """Return the columns that fit; run and verdict always stay."""
    shown = [*COLUMNS]
    for title in _LEFT_OUT_FIRST:
        if _width(rows, shown, gap) > width:
            shown.remove(title)
    return shown


def _width(rows: Sequence[Mapping[str, Text]], titles: Sequence[str], gap: int) -> int:
    """Return the width of a table with these columns."""
    widths = (max([len(title), *(row[title].cell_len for row in rows)]) for title in titles)
    return sum(width + gap for width in widths) - gap


def _is_text(title: str) -> bool:
    field = None if title in COLUMNS else find(FIELDS, title)
    return title in _TEXTS or (field is not None and field.kind.is_text)


def _field_cell(name: str, entry: Entry) -> Text:
    """Return the value of a field of ``--where``; empty if it is unknown."""
    field = find(FIELDS, name)
    value = None if field is None else field.read(entry)
    return Text() if field is None or value is None else _text(field.kind.text(value))


def _short_title(entry: Entry) -> str:
    """Return a run's name, cut in the middle, and its id, which commands take."""
    title = NamedRun(entry.id, entry.name).title
    if entry.name == entry.id:
        return _middle_cut(title, _LONGEST_NAME)
    return _middle_cut(entry.name, _LONGEST_NAME) + title[len(entry.name) :]


def _middle_cut(text: str, length: int) -> str:
    """Replace the middle of a longer text by an ellipsis."""
    if len(text) <= length:
        return text
    end = (length - 1) // 2
    return f"{text[: length - 1 - end]}…{text[-end:]}"


def _cells(entry: Entry, baseline: Entry | None, now: datetime) -> list[Text]:
    summary = entry.summary
    baseline_name = "is one" if entry.synthetic else "" if baseline is None else baseline.name
    return [
        _text(NamedRun(entry.id, entry.name).title),
        Text(f"{entry.ranks:,}" if entry.ranks else ""),
        Text("" if summary.steps is None else f"{summary.steps:,}"),
        Text("" if summary.samples_per_second is None else significant(summary.samples_per_second)),
        Text("" if summary.goodput is None else percent(summary.goodput)),
        _text(_verdict(entry)),
        _bar(summary.shares),
        _text(baseline_name),
        Text(decimal(entry.bytes, precision=0)),
        Text(age(entry.began, now)),
    ]


def _text(text: str) -> Text:
    """Return text from logs without markup."""
    return Text(plain(text), overflow="fold")


def _verdict(entry: Entry) -> str:
    """Return the verdict as all lists show it; another version's words stay as they are."""
    summary = entry.summary
    kind, cause = known(summary.verdict, VERDICTS), known(summary.cause, VERDICT_CAUSES)
    if kind is None:
        return summary.verdict or "not analysed"
    healthy = summary.fault is False and kind != "insufficient_data"
    return short_title(kind, cause, summary.named_ranks, healthy=healthy)


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
