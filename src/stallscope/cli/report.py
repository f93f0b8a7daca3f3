"""Where a run's time goes, who causes it, and what fixing it gains."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.baseline import find_baseline
from stallscope.errors import UsageError
from stallscope.reports import registry
from stallscope.reports.json_report import document
from stallscope.reports.terminal import summary
from stallscope.reports.write import write_reports
from stallscope.runs import open_run

from .main import FAILED, FINE
from .opening import open_all, with_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a folder with logs, a log, a URL, or a collected run",
    )
    parser.add_argument(
        "--baseline", metavar="RUN", help="the same job on synthetic data, to compare with"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="where to write (reports/)")
    parser.add_argument(
        "--format",
        metavar="LIST",
        help=f"comma-separated: {', '.join(registry.names())}; without it, a summary in the terminal",
    )
    parser.add_argument("--force", action="store_true", help="replace reports that are there")
    parser.add_argument(
        "--read-as", metavar="NAME", help="the parser to use, whatever it looks like"
    )


def run(options: argparse.Namespace) -> int:
    formats = registry.parse(options.format) if options.format else []
    baseline = open_run(options.baseline) if options.baseline else None
    runs, failures = open_all(options.runs, options.read_as)
    analyses = [
        analyse(one, baseline or find_baseline(one, runs))
        for one in with_progress(runs, "analysing")
    ]
    if analyses:
        _show(analyses, formats, options)
    for failure in failures:
        print(f"stallscope: {failure}", file=sys.stderr)
    return FAILED if failures else FINE


def _show(analyses: list[Analysis], formats: list[str], options: argparse.Namespace) -> None:
    if not formats:
        if options.out is not None:
            raise UsageError("--out needs --format: say which of html, md, json, csv to write")
        console = Console()
        for analysis in analyses:
            console.print(summary(analysis))
        return
    if formats == ["json"] and options.out is None:
        json.dump([document(analysis) for analysis in analyses], sys.stdout, indent=1)
        print()
        return
    for path in write_reports(analyses, formats, options.out or Path("reports"), options.force):
        print(path)
