"""Show what changed between two runs, or when it changed over many runs of a job."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.comparison import compare
from stallscope.analysis.regression import regression
from stallscope.errors import UsageError
from stallscope.formatting.lists import counted
from stallscope.formatting.plain import plain
from stallscope.opening import place_warnings
from stallscope.reports.comparison import Compared, parts
from stallscope.run import Run, newest_first

from . import output
from .main import print_failures
from .output import open_all, open_one, with_progress

_STEM = "comparison"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="two runs, or at least three of a job to compare over time; a folder or a store means all "
        "its runs, and PLACE#NAME one of them",
    )
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        help="for two runs: the same job on synthetic data, to compare with",
    )
    parser.add_argument(
        "--same-job",
        action="store_true",
        help="for at least three runs: printed logs of one program are of one job",
    )
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    formats = output.formats_of(options)
    output.refuse_to_overwrite(_STEM, formats, options)
    runs, failures = open_all(options.runs, options.read_as)
    if len(runs) > 1:
        baseline = None if options.baseline is None else _baseline(options.baseline, runs)
        if len(runs) > len(options.runs) > 1:
            _print_count(runs)
        compared = _compare(
            runs, baseline, one_by_one=len(options.runs) > 1, same_job=options.same_job
        )
        opened = runs if baseline is None else [*runs, baseline.run]
        compared = replace(compared, warnings=place_warnings(opened))
        if compared.pair is None and not compared.histories:
            raise UsageError("none of these runs has timed steps: there is nothing to compare")
        output.show(_STEM, formats, parts(compared), options)
    elif not failures:
        raise UsageError(
            f"{options.runs[0]}: one run cannot be compared; name two, or more, or a folder or a store "
            "of them"
        )
    return print_failures(failures)


def _print_count(runs: Sequence[Run]) -> None:
    """Say that all runs of a place are compared, where the user may have meant one of each place."""
    places = Counter(run.source for run in runs)
    example = next(
        (f"{run.source}#{run.id}" for run in runs if places[run.source] > 1), "PLACE#NAME"
    )
    print(
        f"stallscope: these places have {len(runs)} runs, which are compared over time; to compare two, "
        f"name one of each place, such as {plain(example)}",
        file=sys.stderr,
    )


def _baseline(source: str, runs: Sequence[Run]) -> Analysis:
    """Return the analysis of the baseline, for two runs on as many ranks."""
    if len(runs) != 2:
        raise UsageError(f"--baseline is for two runs, and there are {len(runs)}: leave it out")
    baseline = open_one(source, known=place_warnings(runs))
    for run in runs:
        if run.size != baseline.size:
            raise UsageError(
                f"{source}: a baseline on {counted(baseline.size, 'rank')} cannot be compared with "
                f"{run.source} on {run.size:,}; name two runs on {counted(baseline.size, 'rank')}"
            )
    return analyse(baseline)


def _compare(
    runs: Sequence[Run], baseline: Analysis | None, *, one_by_one: bool, same_job: bool
) -> Compared:
    """Compare two runs, or more over time.

    Args:
        baseline: the run that the verdicts are compared with.
        one_by_one: whether the user named the runs in order, not as a store.
        same_job: whether printed logs of one program are of one job.
    """
    if len(runs) == 2 and not one_by_one:
        runs = newest_first(runs)[::-1]
    analyses = (analyse(run, baseline) for run in with_progress(runs, "analysing"))
    if len(runs) == 2:
        return Compared(pair=compare(*analyses))
    histories = regression(analyses, same_job=same_job)
    if len(histories) > 1 and all(len(history.runs) == 1 for history in histories):
        raise UsageError(
            f"these {len(histories):,} runs are all of different jobs or numbers of ranks, so they show "
            "no change over time; name two of them to see what differs, or say --same-job if they are "
            "logs that do not state their job"
        )
    return Compared(histories=histories)
