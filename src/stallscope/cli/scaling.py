"""How a job scales over numbers of ranks, and where efficiency is lost."""

from __future__ import annotations

import argparse
import sys

from stallscope.analysis import analyse
from stallscope.analysis.scaling import scaling, untimed
from stallscope.reports.scaling import parts

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
    output.refuse_to_overwrite(_STEM, formats, options)
    runs, failures = open_all(options.runs, options.read_as, repeats=True)
    analyses = [analyse(one) for one in with_progress(runs, "analysing")]
    series = scaling(analyses)
    failures += untimed(analyses)
    if series:
        output.show(_STEM, formats, parts(series), options)
    for failure in failures:
        print(f"stallscope: {failure}", file=sys.stderr)
    return FAILED if failures else FINE
