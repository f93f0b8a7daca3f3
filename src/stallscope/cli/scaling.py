"""How a job scales over numbers of ranks, and where efficiency is lost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from stallscope.analysis import analyse
from stallscope.analysis.scaling import Series, scaling
from stallscope.errors import UsageError
from stallscope.reports import registry
from stallscope.reports.base import ReportOptions
from stallscope.reports.scaling import render
from stallscope.reports.scaling.terminal import scaling_summary
from stallscope.reports.write import write_texts

from .main import FAILED, FINE
from .opening import open_all, with_progress

_STEM = "scaling"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="runs of one job or several, on different numbers of ranks; repeats are welcome",
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="where to write (reports/)")
    parser.add_argument(
        "--format",
        metavar="LIST",
        help=f"comma-separated: {', '.join(registry.names())}; without it, a summary in the terminal",
    )
    parser.add_argument("--force", action="store_true", help="replace reports that are there")
    parser.add_argument(
        "--read-as", metavar="NAME", help="the parser to use, whatever it looks like"
    )


def run(options: argparse.Namespace) -> int:
    formats = registry.parse(options.format) if options.format else []
    if options.out is not None and not formats:
        raise UsageError("--out needs --format: say which of html, md, json, csv to write")
    runs, failures = open_all(options.runs, options.read_as)
    series = scaling(analyse(one) for one in with_progress(runs, "analysing"))
    if series:
        _show(series, formats, options)
    elif runs:
        failures.append(
            "none of these runs has steps that could be timed: nothing to hold together"
        )
    for failure in failures:
        print(f"stallscope: {failure}", file=sys.stderr)
    return FAILED if failures else FINE


def _show(series: Sequence[Series], formats: Sequence[str], options: argparse.Namespace) -> None:
    made = ReportOptions(generated_at=datetime.now(UTC))
    if not formats:
        Console().print(scaling_summary(series))
        return
    if list(formats) == ["json"] and options.out is None:
        sys.stdout.write(render("json", series, made))
        return
    out = options.out or Path("reports")
    paths = [out / f"{_STEM}{registry.by_name(name).suffix}" for name in formats]
    write_texts(paths, (render(name, series, made) for name in formats), out, options.force)
    for path in paths:
        print(path)
