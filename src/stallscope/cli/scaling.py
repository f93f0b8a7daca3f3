"""How a job scales over numbers of ranks, and where efficiency is lost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console

from stallscope.analysis import analyse
from stallscope.analysis.scaling import Series, scaling
from stallscope.reports import registry
from stallscope.reports.base import ReportOptions
from stallscope.reports.scaling import render
from stallscope.reports.scaling.terminal import scaling_summary
from stallscope.reports.write import write_texts

from . import output
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
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    formats = output.formats_of(options)
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


def _show(series: Sequence[Series], formats: list[str], options: argparse.Namespace) -> None:
    made = ReportOptions(generated_at=datetime.now(UTC))
    if not formats:
        Console().print(scaling_summary(series))
        return
    if output.goes_to_standard_output(formats, options):
        sys.stdout.write(render("json", series, made))
        return
    out = options.out or output.REPORTS
    paths = [out / f"{_STEM}{registry.by_name(name).suffix}" for name in formats]
    write_texts(paths, (render(name, series, made) for name in formats), out, options.force)
    for path in paths:
        print(path)
