"""Collect the bundled sample runs, write their reports to reports/demo/, and serve them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from stallscope.analysis import analyse
from stallscope.analysis.gains.baseline import find_baseline, find_single
from stallscope.catalogue.collecting import collect, list_runs
from stallscope.collector.source_kinds import open_source
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.manifests import collected_runs
from stallscope.errors import NotFoundError, UsageError
from stallscope.reports.write import write_reports
from stallscope.run import Run
from stallscope.text.verdicts import headline

from .dashboard import DEFAULT_PORT
from .main import SUCCESS, importing
from .output import with_progress

STORE = Path(".stallscope/demo")
REPORTS = Path("reports/demo")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-serve", action="store_true", help="end after the reports")
    parser.add_argument(
        "--port", type=int, help=f"port to serve on (default: {DEFAULT_PORT}, or a free one)"
    )


def run(options: argparse.Namespace) -> int:
    _collect_samples()
    runs = [load_run(path) for path in collected_runs(STORE)]
    analyses = [
        analyse(run, find_baseline(run, runs), find_single(run, runs))
        for run in with_progress(runs, "analysing")
    ]
    # The folder belongs to the demo, so it may replace the files.
    written = write_reports(analyses, ["html"], REPORTS, force=True)
    for analysis, path in zip(analyses, written, strict=True):
        sentence = headline(analysis.bottleneck, analysis.stragglers)
        print(f"{analysis.run.name}: {sentence}\n  {path.resolve()}")
    if not options.no_serve:
        _serve(runs, options.port)
    return SUCCESS


def _collect_samples() -> None:
    with as_file(files("stallscope.sample_logs")) as samples:
        folders = sorted(path for path in samples.iterdir() if list(path.glob("*.steps.csv")))
        if not folders:
            raise NotFoundError(f"{samples}: the sample runs are missing; install Stallscope again")
        collected = [collect([open_source(str(folder))], STORE) for folder in folders]
    list_runs([run for sample in collected for run in sample.runs], STORE)


def _serve(runs: Sequence[Run], port: int | None) -> None:
    # Dash takes a second to import, and --no-serve does without.
    with importing():
        from stallscope.dashboard.server import serve
        from stallscope.dashboard.store import RunStore

    store = RunStore(runs)
    if port is not None:
        serve(store, port=port)
        return
    try:
        serve(store, port=DEFAULT_PORT)
    except UsageError:
        # The default port is in use: take any free one.
        serve(store, port=0)
