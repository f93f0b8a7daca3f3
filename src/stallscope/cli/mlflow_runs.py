"""What ``report`` does with MLflow: runs that are picked by a filter, and summaries that go back."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from stallscope.analysis import Analysis
from stallscope.errors import UsageError
from stallscope.reports.write import write_reports

_TARGET = re.compile(r"mlflow(?::([0-9a-f]{32}))?")
# Also that of a run that was collected from MLflow.
_SOURCE = re.compile(r"mlflow:([0-9a-f]{32})\b")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--experiment", metavar="NAME", help="report on the runs of this MLflow experiment, too"
    )
    parser.add_argument(
        "--filter",
        metavar="FILTER",
        default="",
        help="of its runs, those that this filter in MLflow's words picks",
    )
    parser.add_argument(
        "--to",
        metavar="mlflow[:RUN_ID]",
        help="write verdict, figures and the HTML report to the MLflow run: the one the logs came "
        "from, or this one",
    )


def picked(options: argparse.Namespace) -> list[str]:
    """The runs of the experiment, as RUN arguments.

    Raises:
        UsageError: for a filter without an experiment.
    """
    if options.experiment is None:
        if options.filter:
            raise UsageError("--filter needs --experiment: say whose runs are to be filtered")
        return []
    from stallscope.collector.mlflow.search import find_runs

    return [f"mlflow:{run_id}" for run_id in find_runs(options.experiment, options.filter)]


def checked_target(target: str | None) -> None:
    """
    Raises:
        UsageError: if ``--to`` names no place that a summary can go to.
    """
    if target is not None and _TARGET.fullmatch(target) is None:
        raise UsageError(f"--to {target}: say mlflow, or mlflow:RUN_ID with 32 hex digits")


def write_back(analyses: Sequence[Analysis], target: str) -> list[str]:
    """Write a summary and the HTML report of each analysis to its MLflow run; which ones they are.

    Raises:
        UsageError: if a run did not come from MLflow, or several are to go to one run.
    """
    from stallscope.collector.mlflow.summary import write_summary

    ids = [_run_id(analysis, target, len(analyses)) for analysis in analyses]
    with tempfile.TemporaryDirectory(prefix="stallscope-") as folder:
        paths = write_reports(analyses, ["html"], Path(folder))
        for analysis, run_id, path in zip(analyses, ids, paths, strict=True):
            write_summary(analysis, run_id, report=path)
    return ids


def _run_id(analysis: Analysis, target: str, count: int) -> str:
    named = _TARGET.fullmatch(target)
    if named is not None and named[1]:
        if count > 1:
            raise UsageError(f"--to {target}: {count} runs cannot go to one; name one RUN")
        return named[1]
    found = _SOURCE.match(analysis.run.source)
    if found is None:
        raise UsageError(
            f"{analysis.run.name} did not come from MLflow: say where it belongs with "
            "--to mlflow:RUN_ID"
        )
    return found[1]
