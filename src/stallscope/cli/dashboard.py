"""Look at runs in the browser."""

from __future__ import annotations

import argparse
import sys

from stallscope.dashboard.server import serve
from stallscope.dashboard.store import RunStore
from stallscope.errors import UsageError

from .main import FINE
from .opening import open_all

DEFAULT_PORT = 8050


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs to show; the first one opens")
    parser.add_argument("--baseline", metavar="RUN", help="a further run, to compare with")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="0 takes any free one (8050)"
    )
    parser.add_argument(
        "--read-as", metavar="NAME", help="the parser to use, whatever it looks like"
    )


def run(options: argparse.Namespace) -> int:
    sources = options.runs + ([options.baseline] if options.baseline else [])
    runs, failures = open_all(sources, options.read_as)
    for failure in failures:
        print(f"stallscope: {failure}", file=sys.stderr)
    if not runs:
        raise UsageError("none of the runs can be shown")
    serve(RunStore(runs), host=options.host, port=options.port)
    return FINE
