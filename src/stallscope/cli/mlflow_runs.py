"""What commands do with MLflow: runs that are picked by a filter, and summaries that go back."""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

from stallscope.analysis import Analysis
from stallscope.errors import UsageError
from stallscope.reports.write import write_reports

_TARGET = re.compile(r"mlflow(?::([0-9a-f]{32}))?")
# Also that of a run that was collected from MLflow.
_SOURCE = re.compile(r"mlflow:([0-9a-f]{32})\b")


def add_picking_arguments(parser: argparse.ArgumentParser, does: str) -> None:
    """Let a command take the runs of experiments; ``does`` is what it does with them."""
    parser.add_argument(
        "--experiment",
        metavar="NAME",
        action="append",
        default=[],
        help=f"{does} the runs of this MLflow experiment, too; may be given several times",
    )
    parser.add_argument(
        "--filter",
        metavar="FILTER",
        default="",
        help="of its runs, those that this filter in MLflow's words picks",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_picking_arguments(parser, "report on")
    parser.add_argument(
        "--to",
        metavar="mlflow[:RUN_ID]",
        help="write verdict, figures and the HTML report to the MLflow run: the one the logs came "
        "from, or this one",
    )


def experiments(options: argparse.Namespace) -> list[str]:
    """The names of the experiments whose runs are picked, each once.

    Raises:
        UsageError: for a filter without an experiment.
    """
    if options.filter and not options.experiment:
        raise UsageError("--filter needs --experiment: say whose runs are to be filtered")
    return list(dict.fromkeys(options.experiment))


def picked(options: argparse.Namespace) -> list[str]:
    """The runs of the experiments, as RUN arguments.

    Raises:
        UsageError: for a filter without an experiment.
    """
    names = experiments(options)
    if not names:
        return []
    from stallscope.collector.mlflow.search import find_runs

    return [f"mlflow:{run_id}" for name in names for run_id in find_runs(name, options.filter)]


def checked_target(target: str | None) -> None:
    """
    Raises:
        UsageError: if ``--to`` names no place that a summary can go to.
    """
    if target is not None and _TARGET.fullmatch(target) is None:
        raise UsageError(f"--to {target}: say mlflow, or mlflow:RUN_ID with 32 hex digits")


def checked_count(target: str | None, count: int) -> None:
    """
    Raises:
        UsageError: if several runs are to go to one.
    """
    if count > 1 and target is not None and target != "mlflow":
        raise UsageError(f"--to {target}: {count} runs cannot go to one; name one RUN")


def write_back(analysis: Analysis, source: str, target: str) -> str:
    """Write a summary and the HTML report to the MLflow run; what was done.

    Args:
        analysis: what is written.
        source: where the run's logs came from.
        target: as ``--to`` takes it.

    Raises:
        UsageError: if the run did not come from MLflow, and no other one is named.
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
    found = _SOURCE.match(source)
    if found is None:
        raise UsageError(
            f"{analysis.run.name} did not come from MLflow: say where it belongs with "
            "--to mlflow:RUN_ID"
        )
    return found[1]
