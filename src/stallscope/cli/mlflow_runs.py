"""Select runs of MLflow experiments, and write summaries back to MLflow."""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

from stallscope.analysis import Analysis
from stallscope.errors import UsageError
from stallscope.reports.write import write_reports

_TARGET = re.compile(r"mlflow(?::([0-9a-f]{32}))?")
# Also matches the source of a run that was collected from MLflow.
_SOURCE = re.compile(r"mlflow:([0-9a-f]{32})\b")


def add_picking_arguments(parser: argparse.ArgumentParser, does: str) -> None:
    """Add options that select runs of experiments; ``does`` is the verb of the help text."""
    parser.add_argument(
        "--experiment",
        metavar="NAME",
        action="append",
        default=[],
        help=f"also {does} the runs of this MLflow experiment; may be given several times",
    )
    parser.add_argument(
        "--filter",
        metavar="FILTER",
        default="",
        help="only runs of the experiments that match this MLflow filter",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_picking_arguments(parser, "report on")
    parser.add_argument(
        "--to",
        metavar="mlflow[:RUN_ID]",
        help="write verdict, figures and HTML report to the MLflow run that the logs came from, or to "
        "this run",
    )


def experiments(options: argparse.Namespace) -> list[str]:
    """Return the names of the selected experiments, each once.

    Raises:
        UsageError: for a filter without an experiment.
    """
    if options.filter and not options.experiment:
        raise UsageError("--filter needs --experiment: name the experiment to filter")
    return list(dict.fromkeys(options.experiment))


def picked_runs(options: argparse.Namespace) -> list[str]:
    """Return the runs of the experiments, as RUN arguments.

    Raises:
        UsageError: for a filter without an experiment.
    """
    names = experiments(options)
    if not names:
        return []
    from stallscope.collector.mlflow.client import find_runs

    return [f"mlflow:{run_id}" for name in names for run_id in find_runs(name, options.filter)]


def check_target(target: str | None) -> None:
    """Check the value of ``--to``.

    Raises:
        UsageError: if it does not name an MLflow run.
    """
    if target is not None and _TARGET.fullmatch(target) is None:
        raise UsageError(f"--to {target}: give mlflow, or mlflow:RUN_ID with 32 hex digits")


def check_count(target: str | None, count: int) -> None:
    """Check that at most one run is written to a single MLflow run.

    Raises:
        UsageError: if there are several.
    """
    if count > 1 and target is not None and target != "mlflow":
        raise UsageError(f"--to {target}: {count} runs cannot be written to one; name one RUN")


def write_back(analysis: Analysis, source: str, target: str) -> str:
    """Write a summary and the HTML report to the MLflow run; return a message.

    Args:
        analysis: the analysis to write.
        source: the source of the run's logs.
        target: the value of ``--to``.

    Raises:
        UsageError: if the run did not come from MLflow, and ``target`` names no run.
    """
    from stallscope.reports.mlflow_run import write_summary

    run_id = _run_id(analysis, source, target)
    with tempfile.TemporaryDirectory(prefix="stallscope-") as folder:
        (path,) = write_reports([analysis], ["html"], Path(folder))
        write_summary(analysis, run_id, report=path)
    return f"mlflow:{run_id}: summary and report written"


def _run_id(analysis: Analysis, source: str, target: str) -> str:
    named = _TARGET.fullmatch(target)
    if named is not None and named[1]:
        return named[1]
    match = _SOURCE.match(source)
    if match is None:
        raise UsageError(
            f"{analysis.run.name} did not come from MLflow: name its MLflow run with "
            "--to mlflow:RUN_ID"
        )
    return match[1]
