"""Check the options of ``report`` before anything is read, and print its list and GitHub's lines."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stallscope.analysis.gains.what_if import WORTH_MENTIONING
from stallscope.batch.units import Settings
from stallscope.collector.run_names import NamedRun
from stallscope.errors import UnwritableError, UsageError
from stallscope.formatting.numbers import amount, faster_in_short
from stallscope.formatting.plain import plain
from stallscope.reports import report_formats
from stallscope.reports.index.index_lines import IndexLine
from stallscope.reports.report_formats import ReportOptions

from . import mlflow_runs, output

# Starting a process takes as long as reporting some runs.
_RUNS_PER_PROCESS = 8
_MOST_JOBS = 1024
_SPAN = re.compile(r"(\d{1,6})\s*(min|h|d|w)")
_SPAN_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_VARIABLE = "GITHUB_STEP_SUMMARY"


def settings_of(options: argparse.Namespace, scratch: Path) -> Settings:
    """Convert the options to the settings of a batch.

    Raises:
        UsageError: if an option is invalid.
    """
    formats = []
    if options.format or options.out is not None:
        # Formats of other packages are looked up only if one is named: it takes milliseconds.
        formats = output.formats_of(options, report_formats.names())
    as_json = output.goes_to_standard_output(formats, options)
    queries = "stallscope.analysis.views.what_if_queries"
    questions = _parsed("--what-if", options.what_if, queries)
    return Settings(
        output="terminal" if not formats else "json" if as_json else "files",
        report=ReportOptions(generated_at=datetime.now(UTC)),
        scratch=scratch,
        out=options.out or output.REPORTS,
        formats=tuple(formats),
        read_as=options.read_as,
        bandwidth=_bandwidth(options.network_bandwidth),
        questions=tuple(dict.fromkeys(questions.values())),
        conditions=tuple(_parsed("--fail-if", options.fail_if, "stallscope.conditions.condition")),
        anonymous=options.anonymous,
        markdown=options.github_summary,
        afterwards=None
        if options.to is None
        else partial(mlflow_runs.write_back, target=options.to),
    )


def _bandwidth(text: str | None) -> float | None:
    """Parse the bus bandwidth, GB/s."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(
            f"--network-bandwidth {text}: give GB/s of bus bandwidth, for example 12.5"
        )
    return value


def _parsed(option: str, texts: Sequence[str], module: str) -> dict[str, Any]:
    """Parse an option's values with the module's ``parse``; return what each text means."""
    values = {}
    for text in texts:
        try:
            # Few reports have questions or conditions, whose languages are large.
            values[text] = import_module(module).parse(text)
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from None
    return values


def jobs_of(options: argparse.Namespace, count: int) -> int:
    """Return the number of processes for this many runs.

    Raises:
        UsageError: if ``--jobs`` is not a number.
    """
    text = options.jobs
    if options.engine != "local":
        return 1  # executors do the work; the driver is one process
    if text is None:
        return min(_cpu_cores(), max(1, count // _RUNS_PER_PROCESS))
    if not text.isdecimal() or not 0 < int(text) <= _MOST_JOBS:
        raise UsageError(f"--jobs {text}: give a number of processes, for example 4")
    return min(int(text), max(1, count))


def _cpu_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse_since(text: str, now: datetime) -> datetime:
    """Return the time of ``--since``: a date, or an age such as 7d; dates start at midnight UTC.

    Raises:
        UsageError: if the text is neither.
    """
    span = _SPAN.fullmatch(text.strip())
    try:
        if span is not None:
            return now - timedelta(**{_SPAN_UNITS[span[2]]: int(span[1])})
        moment = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since {text}: give a date such as 2026-11-01, or an age such as 7d or 12h"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# -- Append reports to the job summaries of GitHub Actions ----------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--github-summary",
        action="store_true",
        help=f"add the report, or the index of several, to the job summary ({_VARIABLE})",
    )


def check(options: argparse.Namespace) -> None:
    """Check that the command runs in a job of GitHub Actions.

    Raises:
        UsageError: if it does not, and ``--github-summary`` is given.
    """
    if options.github_summary and not os.environ.get(_VARIABLE):
        raise UsageError(
            f"--github-summary: {_VARIABLE} is not set; GitHub Actions sets it for every step"
        )


def append(markdown: str) -> None:
    """Append Markdown to the summary of the job.

    Raises:
        UnwritableError: if the file cannot be written.
    """
    path = Path(os.environ[_VARIABLE])
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{markdown}\n")
    except OSError as error:
        raise UnwritableError(
            f"{path}: the summary cannot be written ({error.strerror})"
        ) from error


# -- Print one line per run of a place with several, and the command that shows one ---------------


def print_list(lines: Sequence[IndexLine], place: str) -> None:
    """Print the runs, and the command that reports on the first.

    Args:
        place: the folder or store that has them.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("run", overflow="fold")
    for title in ("ranks", "steps", "step"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    table.add_column("gain", justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*(Text(plain(text), overflow="fold") for text in _cells(line)))
    console = Console()
    console.print(table)
    first = lines[0]
    console.print(Text(plain(f"for one run: stallscope report {place}#{first.id}"), style="dim"))


def _cells(line: IndexLine) -> tuple[str, ...]:
    return (
        NamedRun(line.id, line.name).title,
        "" if line.ranks is None else f"{line.ranks:,}",
        "" if line.steps is None else f"{line.steps:,}",
        "" if line.step_ms is None else amount(line.step_ms, "ms"),
        line.said,
        _gain(line),
    )


def _gain(line: IndexLine) -> str:
    if line.speedup is None or line.speedup < WORTH_MENTIONING:
        return ""
    return f"{'≤ ' if line.bound else ''}{faster_in_short(line.speedup, line.speedup_ci95)}"
