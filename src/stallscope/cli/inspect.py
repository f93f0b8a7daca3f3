"""List what is in logs, file by file, and which runs they make up, and what others would show."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from stallscope.errors import StallscopeError, UsageError
from stallscope.formatting.lists import counted, listed, ranges
from stallscope.formatting.numbers import amount, percent
from stallscope.formatting.plain import plain
from stallscope.parsers.inspection.inspect_files import inspect
from stallscope.parsers.inspection.inspected import (
    InspectedFile,
    InspectedRun,
    Inspection,
    Proposal,
    TimeSpan,
    excerpt,
)
from stallscope.parsers.registry import names_of_plugins

from .main import add_read_as, print_failures
from .progress_bars import show_progress

# More rows are hard to read; JSON lists all files.
_MOST_FILES = 40
_NAMED = 3

# Characters that have a meaning within double quotes.
_SPECIAL = frozenset('"$`\\!')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="folders with logs, logs, or URLs of them"
    )
    add_read_as(parser)
    parser.add_argument(
        "--format", metavar="NAME", help="json; without it, a table in the terminal"
    )
    parser.add_argument(
        "--excerpt",
        action="store_true",
        help="print some lines of a log with names masked, to show them to others",
    )


def run(options: argparse.Namespace) -> int:
    if options.format not in (None, "json"):
        raise UsageError(f"there is no format {options.format!r}: inspect writes json, or a table")
    if options.excerpt:
        return _print_excerpts(options.paths)
    inspections: list[tuple[str, Inspection]] = []
    failures: list[str] = []
    for path in options.paths:
        try:
            inspections.append(
                (path, inspect(path, read_as=options.read_as, show_progress=show_progress))
            )
        except UsageError:
            raise
        except StallscopeError as error:
            failures.append(str(error))
    if options.format == "json":
        _print_json(inspections)
    else:
        for path, seen in inspections:
            _print_seen(path, seen, len(options.paths) > 1)
    for _, seen in inspections:
        failures += seen.warnings
    return print_failures(map(plain, failures))


def _print_excerpts(paths: Sequence[str]) -> int:
    failures: list[str] = []
    for path in paths:
        try:
            for line in excerpt(Path(path)):
                print(plain(line))
        except StallscopeError as error:
            failures.append(str(error))
    return print_failures(map(plain, failures))


def _print_json(inspections: Sequence[tuple[str, Inspection]]) -> None:
    document = {
        "schema_version": 1,
        "files": [_file(place, seen, file) for place, seen in inspections for file in seen.files],
        "runs": [
            {"place": place, **asdict(run)} for place, seen in inspections for run in seen.runs
        ],
        "warnings": [warning for _, seen in inspections for warning in seen.warnings],
    }
    json.dump(document, sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


def _file(place: str, seen: Inspection, inspected: InspectedFile) -> dict[str, Any]:
    file = {"place": place, **asdict(inspected)}
    if inspected.proposal is not None:
        file["proposal"]["command"] = command_for(place, seen, inspected.proposal.read_as)
    # Scripts know the reading by its first name, too.
    return {**file, "reading": file["proposal"]}


def _print_seen(place: str, seen: Inspection, several: bool) -> None:
    console = Console()
    if several:
        console.print(Text(plain(place), style="bold"))
    if not seen.files:
        console.print("an empty folder")
        return
    console.print(_table(seen.files[:_MOST_FILES]))
    rest = Counter(file.format or file.title for file in seen.files[_MOST_FILES:])
    if rest:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in rest.most_common())
        console.print(Text(f"and {sum(rest.values()):,} more: {kinds}", style="dim"))
    for note, paths in _notes(seen.files).items():
        named = ", ".join(plain(path) for path in paths[:_NAMED])
        more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
        console.print(Text(f"• {plain(note)}: {named}{more}"))
    for run in seen.runs:
        console.print()
        console.print(_run(run))
    if not seen.runs:
        console.print(
            Text("\nno runs: no file here contains times of steps or epochs", style="dim")
        )
    brought = names_of_plugins()
    if brought:
        console.print(
            Text(f"\nplug-ins that read logs: {', '.join(map(plain, brought))}", style="dim")
        )
    print_proposals(console, place, seen)


def _table(files: Iterable[InspectedFile]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("file", overflow="fold", min_width=12)
    table.add_column("is", overflow="fold")
    for title in ("size", "ranks", "steps", "epochs"):
        table.add_column(title, justify="right", no_wrap=title != "ranks")
    table.add_column("from – to", overflow="fold")
    for file in files:
        table.add_row(*map(Text, _cells(file)))
    return table


def _cells(file: InspectedFile) -> tuple[str, ...]:
    what = file.format or file.title
    return (
        plain(file.path),
        plain(f"{what}, likely" if file.sure == "likely" else what),
        "" if file.bytes is None else decimal(file.bytes, precision=0).replace("bytes", "B"),
        ranges(file.ranks),
        "" if file.steps is None else f"{file.steps:,}",
        "" if file.epochs is None else f"{file.epochs:,}",
        "" if file.span is None else _times(file.span),
    )


def _times(span: TimeSpan) -> str:
    start_day, begin = span.begin.rstrip("Z").split("T") if "T" in span.begin else ("", span.begin)
    last, end = span.end.rstrip("Z").split("T") if "T" in span.end else ("", span.end)
    return f"{begin}–{end}" if start_day == last else f"{start_day} {begin} – {last} {end}"


def _notes(files: Iterable[InspectedFile]) -> dict[str, list[str]]:
    """Return each note with the files it is about."""
    files_of: dict[str, list[str]] = defaultdict(list)
    for file in files:
        launcher = () if file.launcher is None else (f"lines labelled by {file.launcher}",)
        zone = ("times are local, of an unknown time zone",) if _in_no_zone(file.span) else ()
        coarse = (file.precision,) if file.precision and file.sure == "likely" else ()
        for note in (*launcher, *coarse, *zone, *file.notes):
            files_of[note].append(file.path)
    return files_of


def _in_no_zone(span: TimeSpan | None) -> bool:
    return span is not None and not span.zone_known


def _ranks(run: InspectedRun) -> str:
    ranks = counted(run.size, "rank")
    if not run.size_known:
        return f"{ranks} left a log (how many trained is not known)"
    details = [] if run.size_from is None else [f"from {run.size_from}"]
    if run.ranks < run.size:
        details.append(f"{run.ranks:,} left logs")
    return f"{ranks} ({'; '.join(details)})" if details else ranks


def _run(run: InspectedRun) -> Text:
    title = run.name if run.name == run.id else f"{run.name} #{run.id}"
    parts = [_ranks(run)]
    if run.hosts is not None:
        parts.append(counted(run.hosts, "host"))
    if run.steps is not None:
        parts.append(counted(run.steps, "step"))
    if run.epochs is not None:
        parts.append(counted(run.epochs, "epoch"))
    text = Text()
    text.append(f"{listed('run', [plain(title)])}\n", style="bold")
    text.append(f"  {', '.join(parts)}\n  known: {plain(run.precision)}")
    if run.span is not None:
        zone = "UTC" if run.span.zone_known else "of an unknown zone"
        begin, end = (
            moment.rstrip("Z").replace("T", " ") for moment in (run.span.begin, run.span.end)
        )
        text.append(f"\n  {begin} – {end} {zone}")
    return text


# -- Print what lines would show that nothing confirms, with the commands that read them ----------


def command_for(place: str, seen: Inspection, read_as: str) -> str:
    """Return the command that reads these files, quoted for the shell."""
    paths = [file.path for file in seen.files if file.proposal and file.proposal.read_as == read_as]
    is_file = len(seen.files) == 1 and PurePosixPath(place).name == PurePosixPath(paths[0]).name
    path = place if is_file or len(paths) > 1 else f"{place.rstrip('/')}/{paths[0]}"
    return f"stallscope report {_quoted(path)} --read-as {_quoted(read_as)}"


def print_proposals(console: Console, place: str, seen: Inspection) -> None:
    """Print what files would show whose lines nothing confirms, with a preview of the first ones."""
    files: dict[str, list[tuple[str, Proposal]]] = defaultdict(list)
    for file in seen.files:
        if file.proposal is not None:
            files[file.proposal.read_as].append((file.path, file.proposal))
    for read_as, proposals in files.items():
        console.print(Text("\nunconfirmed lines about steps", style="bold"))
        for path, proposal in proposals[:_NAMED]:
            console.print(Text(f"  would read {plain(path)}: {_reads(proposal)}"))
        if len(proposals) > _NAMED:
            console.print(Text(f"  and {len(proposals) - _NAMED:,} more"))
        for note in dict.fromkeys(note for _, proposal in proposals for note in proposal.notes):
            console.print(Text(f"  • {note}"))
        console.print(Text("  To read them nevertheless:"))
        command = Text(f"  {command_for(place, seen, read_as)}", style="bold")
        # A line that is wrapped could not be copied.
        console.print(command, soft_wrap=True)


def _reads(proposal: Proposal) -> str:
    """Describe the lines of a file."""
    parts = [f"{counted(proposal.lines, 'line')} ({percent(proposal.share)} of their kind)"]
    several = len(proposal.ranks) > 1
    parts.append(f"rank{'s' if several else ''} {ranges(proposal.ranks)}")
    for name, numbers in (("epochs", proposal.epochs), ("steps", proposal.steps)):
        if numbers is not None:
            parts.append(f"{name} {numbers[0]:,}–{numbers[1]:,}")
    if proposal.step_ms is not None:
        half = proposal.step_precision_ms or 0.0
        about = (proposal.step_ms - half, proposal.step_ms + half)
        parts.append(f"{amount(proposal.step_ms, 'ms', about)} per step")
    if proposal.epoch_s is not None:
        parts.append(f"{amount(proposal.epoch_s, 's')} per epoch")
    if proposal.span is not None:
        begin, end = (
            moment.replace("T", " ") for moment in (proposal.span.begin, proposal.span.end)
        )
        parts.append(f"{begin} – {end}")
    return ", ".join(parts)


def _quoted(text: str) -> str:
    """Quote a text for the shell, in double quotes if it contains single ones."""
    if "'" in text and not _SPECIAL & set(text):
        return f'"{text}"'
    return shlex.quote(text)
