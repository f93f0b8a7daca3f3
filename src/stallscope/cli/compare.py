"""What changed from one run to another, or since when over many runs of a job."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console

from stallscope.analysis import analyse
from stallscope.analysis.comparison import compare
from stallscope.analysis.regression import regression
from stallscope.errors import UsageError
from stallscope.reports import registry
from stallscope.reports.base import ReportOptions
from stallscope.reports.comparison import Compared, render
from stallscope.reports.comparison.terminal import comparison_summary
from stallscope.reports.write import write_texts
from stallscope.run import Run, newest_first

from . import output
from .main import FAILED, FINE
from .opening import open_all, with_progress

_STEM = "comparison"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="two runs, or three and more of a job: then over time; a store is all of its runs",
    )
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    formats = output.formats_of(options)
    runs, failures = open_all(options.runs, options.read_as)
    if len(runs) > 1:
        compared = _compared(runs, one_by_one=len(options.runs) > 1)
        if compared.pair is None and not compared.histories:
            raise UsageError(
                "none of these runs has steps that could be timed: nothing to hold together"
            )
        _show(compared, formats, options)
    elif not failures:
        raise UsageError(
            f"{options.runs[0]}: one run cannot be compared; name two, or more, or a store of them"
        )
    for failure in failures:
        print(f"stallscope: {failure}", file=sys.stderr)
    return FAILED if failures else FINE


def _compared(runs: Sequence[Run], one_by_one: bool) -> Compared:
    """Two runs side by side, more of them one after the other.

    Args:
        one_by_one: whether the user named them in an order, and not as a store.
    """
    if len(runs) == 2 and not one_by_one:
        runs = newest_first(runs)[::-1]
    analyses = (analyse(one) for one in with_progress(runs, "analysing"))
    if len(runs) == 2:
        return Compared(pair=compare(*analyses))
    return Compared(histories=regression(analyses))


def _show(compared: Compared, formats: list[str], options: argparse.Namespace) -> None:
    made = ReportOptions(generated_at=datetime.now(UTC))
    if not formats:
        Console().print(comparison_summary(compared))
        return
    if output.goes_to_standard_output(formats, options):
        sys.stdout.write(render("json", compared, made))
        return
    out = options.out or output.REPORTS
    paths = [out / f"{_STEM}{registry.by_name(name).suffix}" for name in formats]
    write_texts(paths, (render(name, compared, made) for name in formats), out, options.force)
    for path in paths:
        print(path)
