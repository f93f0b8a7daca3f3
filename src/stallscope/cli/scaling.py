"""Show how a job scales over numbers of ranks, and where efficiency is lost."""

from __future__ import annotations

import argparse

from stallscope.analysis import analyse
from stallscope.analysis.scaling import left_out, scaling
from stallscope.opening import place_warnings
from stallscope.reports.scaling import parts

from . import output
from .main import print_failures
from .output import open_all, with_progress

_STEM = "scaling"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="runs of one or more jobs, on different numbers of ranks, or folders and stores of them; "
        "repeats narrow the intervals",
    )
    parser.add_argument(
        "--same-job",
        action="store_const",
        const="all",
        dest="by",
        help="all runs are of one job, whatever their logs say of it",
    )
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    formats = output.formats_of(options)
    output.refuse_to_overwrite(_STEM, formats, options)
    runs, failures = open_all(options.runs, options.read_as)
    analyses = [analyse(run) for run in with_progress(runs, "analysing")]
    series = scaling(analyses, by=options.by)
    failures += left_out(analyses, options.by)
    if series:
        output.show(_STEM, formats, parts(series, place_warnings(runs)), options)
    return print_failures(failures)
