"""Where a run's time goes, who causes it, and what fixing it gains."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from stallscope.analysis import Analysis, analyse, ask
from stallscope.analysis.asked import parse
from stallscope.analysis.baseline import find_baseline, find_single, split_baselines
from stallscope.collecting import baselines_in
from stallscope.collector.catalogue import Catalogue
from stallscope.errors import UsageError
from stallscope.reports.json_report import document
from stallscope.reports.terminal import summary
from stallscope.reports.write import write_reports
from stallscope.run import Run
from stallscope.runs import open_run, store_of

from . import mlflow_runs, output
from .main import FAILED, FINE
from .opening import open_all, with_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="a folder with logs, a log, a URL, an MLflow run, a collected run, or a store of them",
    )
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        action="append",
        default=[],
        help="the same job on synthetic data, to compare with; a second one is that on one rank",
    )
    parser.add_argument(
        "--network-bandwidth",
        metavar="GB/S",
        help="bus bandwidth that the network gives, as nccl-tests reports it",
    )
    parser.add_argument(
        "--what-if",
        metavar="QUESTION",
        action="append",
        default=[],
        help="bandwidth:4 (so many times as much) or ranks:64; may be given several times",
    )
    mlflow_runs.add_arguments(parser)
    output.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    formats = output.formats_of(options)
    bandwidth = _bandwidth(options.network_bandwidth)
    questions = _questions(options.what_if)
    baselines = _baselines(options.baseline)
    mlflow_runs.checked_target(options.to)
    sources = [*options.runs, *mlflow_runs.picked(options)]
    if not sources:
        raise UsageError("name a RUN to report on, or an --experiment; stallscope report --help")
    runs, failures = open_all(sources, options.read_as)
    analyses = []
    stores = {store for store in map(store_of, options.runs) if store is not None}
    for one in with_progress(runs, "analysing"):
        baseline, single = _compared_with(one, baselines, runs, stores)
        analyses.append(analyse(one, baseline, single, bandwidth))
    if analyses:
        answered = [_answered(analysis, questions, analyses) for analysis in analyses]
        _show(answered, formats, options)
        if options.to is not None:
            for run_id in mlflow_runs.write_back(answered, options.to):
                print(f"mlflow:{run_id}: summary and report written", file=sys.stderr)
    for failure in failures:
        print(f"stallscope: {failure}", file=sys.stderr)
    return FAILED if failures else FINE


def _bandwidth(text: str | None) -> float | None:
    """GB/s of bus bandwidth; None where none was given."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"--network-bandwidth {text}: say GB/s of bus bandwidth, 12.5 for example")
    return value


def _questions(texts: Sequence[str]) -> list[str]:
    """The questions, each once."""
    for text in texts:
        try:
            parse(text)
        except ValueError as error:
            raise UsageError(f"--what-if: {error}") from None
    return list(dict.fromkeys(texts))


def _baselines(sources: Sequence[str]) -> list[Run]:
    if len(sources) > 2:
        raise UsageError(
            "--baseline takes two runs at most: one on as many ranks, and one on a single rank"
        )
    found = [open_run(source) for source in sources]
    if len(found) == 2 and sum(one.size == 1 for one in found) != 1:
        sizes = " and ".join(str(one.size) for one in found)
        raise UsageError(
            "of two --baseline runs one is on as many ranks as the run, the other on a single rank; "
            f"these are on {sizes} ranks"
        )
    return found


def _compared_with(
    run: Run, baselines: Sequence[Run], runs: Sequence[Run], stores: Iterable[Path]
) -> tuple[Run | None, Run | None]:
    """The baseline, and the run on one rank: those that were named, or else those among the runs, or
    else in the stores that the runs are in.
    """
    baseline, single = split_baselines(run, baselines)
    baseline, single = baseline or find_baseline(run, runs), single or find_single(run, runs)
    for store in stores:
        if baseline is not None and single is not None:
            break
        with Catalogue.open(store) as catalogue:
            there, alone = baselines_in(catalogue, run)
        baseline, single = baseline or there, single or alone
    return baseline, single


def _answered(analysis: Analysis, questions: Sequence[str], others: Sequence[Analysis]) -> Analysis:
    """The analysis with the answers among its gains, and a warning for every question without one."""
    answers = []
    unanswered = []
    # Where waiting and communicating look the same, no answer is worth anything.
    tells = analysis.bottleneck.kind != "insufficient_data"
    for question in questions:
        answer = ask(question, analysis, others) if tells else None
        if answer is not None:
            answers.append(answer)
        elif tells:
            unanswered.append(f"--what-if {question}: no run of this job on several ranks is here")
        else:
            unanswered.append(f"--what-if {question}: these logs cannot tell where the time goes")
    return replace(
        analysis,
        what_if=(*analysis.what_if, *answers),
        warnings=(*analysis.warnings, *unanswered),
    )


def _show(analyses: list[Analysis], formats: list[str], options: argparse.Namespace) -> None:
    if not formats:
        console = Console()
        for analysis in analyses:
            console.print(summary(analysis))
        return
    if output.goes_to_standard_output(formats, options):
        json.dump([document(analysis) for analysis in analyses], sys.stdout, indent=1)
        print()
        return
    for path in write_reports(analyses, formats, options.out or output.REPORTS, options.force):
        print(path)
