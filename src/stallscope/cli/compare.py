"""Show what changed between two runs, or when it changed over many runs of a job."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.history.comparison import compare
from stallscope.analysis.history.regression import regression
from stallscope.batch.folders import runs_of
from stallscope.errors import UsageError
from stallscope.opening import open_runs
from stallscope.reports.comparison import Compared, parts
from stallscope.run import Run, newest_first

from . import output
from .bars import show_progress
from .main import print_failures
from .opening import open_all, with_progress

_STEM = "comparison"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="two runs, or at least three of a job to compare over time; a store means all its runs",
    )
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        help="for two runs: the same job on synthetic data, to compare with",
    )
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    formats = output.formats_of(options)
    output.refuse_to_overwrite(_STEM, formats, options)
    runs, failures = open_all(options.runs, options.read_as)
    if len(runs) > 1:
        baseline = None if options.baseline is None else _baseline(options.baseline, runs)
        compared = _compare(runs, baseline, one_by_one=len(options.runs) > 1)
        if compared.pair is None and not compared.histories:
            raise UsageError("none of these runs has timed steps: there is nothing to compare")
        output.show(_STEM, formats, parts(compared), options)
    elif not failures:
        raise UsageError(_too_few(options.runs[0]))
    return print_failures(failures)


def _too_few(source: str) -> str:
    """Say which runs to name instead of this one."""
    found = runs_of(source)
    if len(found) < 2:
        return f"{source}: one run cannot be compared; name two, or more, or a store of them"
    newest, older = (unit.place for unit in found[:2])
    return (
        f"{source}: a folder stands for its newest run; name two of its {len(found)} runs, such as "
        f"{older} {newest}"
    )


def _baseline(source: str, runs: Sequence[Run]) -> Analysis:
    """Return the analysis of the baseline, for two runs on as many ranks."""
    if len(runs) != 2:
        raise UsageError(f"--baseline is for two runs, and there are {len(runs)}: leave it out")
    with show_progress("reading", 1):
        found = open_runs(source, show_progress=show_progress)
    if len(found) != 1:
        raise UsageError(f"{source}: there are {len(found)} runs; --baseline takes one of them")
    (baseline,) = found
    for one in runs:
        if one.size != baseline.size:
            raise UsageError(
                f"{source}: a baseline on {baseline.size} ranks cannot be compared with {one.source} on "
                f"{one.size} ranks; name two runs on {baseline.size} ranks"
            )
    return analyse(baseline)


def _compare(runs: Sequence[Run], baseline: Analysis | None, one_by_one: bool) -> Compared:
    """Compare two runs, or more over time.

    Args:
        baseline: the run that the verdicts are compared with.
        one_by_one: whether the user named the runs in order, not as a store.
    """
    if len(runs) == 2 and not one_by_one:
        runs = newest_first(runs)[::-1]
    analyses = (analyse(one, baseline) for one in with_progress(runs, "analysing"))
    if len(runs) == 2:
        return Compared(pair=compare(*analyses))
    return Compared(histories=regression(analyses))
