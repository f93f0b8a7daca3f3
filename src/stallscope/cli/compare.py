"""What changed from one run to another, or since when over many runs of a job."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.history.comparison import compare
from stallscope.analysis.history.regression import regression
from stallscope.errors import UsageError
from stallscope.reports.comparison import Compared, parts
from stallscope.run import Run, newest_first
from stallscope.runs import open_runs

from . import output
from .bars import watching
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
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        help="of two runs: the same job on synthetic data, which their verdicts are held against",
    )
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    formats = output.formats_of(options)
    output.refuse_to_overwrite(_STEM, formats, options)
    runs, failures = open_all(options.runs, options.read_as)
    if len(runs) > 1:
        baseline = None if options.baseline is None else _baseline(options.baseline, runs)
        compared = _compared(runs, baseline, one_by_one=len(options.runs) > 1)
        if compared.pair is None and not compared.histories:
            raise UsageError(
                "none of these runs has steps that could be timed: nothing to hold together"
            )
        output.show(_STEM, formats, parts(compared), options)
    elif not failures:
        raise UsageError(
            f"{options.runs[0]}: one run cannot be compared; name two, or more, or a store of them"
        )
    for failure in failures:
        print(f"stallscope: {failure}", file=sys.stderr)
    return FAILED if failures else FINE


def _baseline(source: str, runs: Sequence[Run]) -> Analysis:
    """The one run that ``--baseline`` names, for two runs on as many ranks."""
    if len(runs) != 2:
        raise UsageError(
            f"--baseline is for the verdicts of two runs, and there are {len(runs)}: leave it out"
        )
    with watching("reading", 1):
        found = open_runs(source, watching=watching)
    if len(found) != 1:
        raise UsageError(f"{source}: there are {len(found)} runs; --baseline takes one of them")
    (baseline,) = found
    for one in runs:
        if one.size != baseline.size:
            raise UsageError(
                f"{source}: a baseline on {baseline.size} ranks says nothing of {one.source}, on "
                f"{one.size}; name two runs on as many ranks as it"
            )
    return analyse(baseline)


def _compared(runs: Sequence[Run], baseline: Analysis | None, one_by_one: bool) -> Compared:
    """Two runs side by side, more of them one after the other.

    Args:
        baseline: what the verdicts are held against.
        one_by_one: whether the user named them in an order, and not as a store.
    """
    if len(runs) == 2 and not one_by_one:
        runs = newest_first(runs)[::-1]
    analyses = (analyse(one, baseline) for one in with_progress(runs, "analysing"))
    if len(runs) == 2:
        return Compared(pair=compare(*analyses))
    return Compared(histories=regression(analyses))
