"""Bring logs from where they are into a store: a folder with one collected run each."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stallscope.collector.store import save_run

from .main import FAILED, FINE
from .opening import open_all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="a folder with logs, a log, a URL"
    )
    parser.add_argument("--to", metavar="DIR", type=Path, required=True, help="the store")
    parser.add_argument(
        "--read-as", metavar="NAME", help="the parser to use, whatever it looks like"
    )


def run(options: argparse.Namespace) -> int:
    runs, failures = open_all(options.sources, options.read_as)
    for one in runs:
        print(save_run(one, options.to))
        for problem in one.problems:
            print(f"  {problem}", file=sys.stderr)
    for failure in failures:
        print(f"stallscope: {failure}", file=sys.stderr)
    return FAILED if failures else FINE
