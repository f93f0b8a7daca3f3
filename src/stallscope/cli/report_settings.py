"""Check the options of ``report``, before anything is read."""

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

from stallscope.batch.settings import Settings
from stallscope.errors import UsageError
from stallscope.reports import registry
from stallscope.reports.base import ReportOptions

from . import mlflow_runs, output

# Starting a process takes as long as reporting some runs.
_RUNS_PER_PROCESS = 8
_MOST_JOBS = 1024
_SPAN = re.compile(r"(\d{1,6})\s*(min|h|d|w)")
_SPAN_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def settings_of(options: argparse.Namespace, scratch: Path) -> Settings:
    """Convert the options to the settings of a batch.

    Raises:
        UsageError: if an option is invalid.
    """
    formats = output.formats_of(options, registry.names())
    as_json = output.goes_to_standard_output(formats, options)
    return Settings(
        output="terminal" if not formats else "json" if as_json else "files",
        report=ReportOptions(generated_at=datetime.now(UTC)),
        scratch=scratch,
        out=options.out or output.REPORTS,
        formats=tuple(formats),
        read_as=options.read_as,
        bandwidth=_bandwidth(options.network_bandwidth),
        questions=_checked(
            "--what-if", options.what_if, "stallscope.analysis.views.what_if_queries"
        ),
        conditions=_checked("--fail-if", options.fail_if, "stallscope.conditions"),
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


def _checked(option: str, texts: Sequence[str], module: str) -> tuple[str, ...]:
    """Check an option's values with the module's ``parse``; return each once."""
    for text in texts:
        try:
            # Few reports have questions or conditions, whose languages are large.
            import_module(module).parse(text)
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from None
    return tuple(dict.fromkeys(texts))


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
