"""Print a run in six lines: verdict, step time by cause, stragglers, gain, logs, how to see more."""

from __future__ import annotations

import argparse
import time

from stallscope.analysis import analyse
from stallscope.errors import UsageError
from stallscope.opening import open_run
from stallscope.run import Run
from stallscope.text.summary_words import six_lines

from .main import SUCCESS, add_read_as, print_warnings

# Between two looks at logs that are still open.
_PAUSE_SECONDS = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="a folder with logs, a log, a URL, or a collected run"
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        default="0",
        help="wait at most so long for ranks that have not closed their logs (default: 0)",
    )
    add_read_as(parser)


def run(options: argparse.Namespace) -> int:
    closed_run = _closed_run(options.run, options.read_as, _seconds(options.wait))
    print_warnings(closed_run.place_warnings)
    for line in six_lines(analyse(closed_run), options.run):
        print(line)
    return SUCCESS


def _closed_run(source: str, read_as: str | None, seconds: float) -> Run:
    """Open the run, again while a rank has not closed its log and there is time."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        opened = open_run(source, read_as=read_as)
        took = time.monotonic() - began
        if opened.status == "completed" or time.monotonic() + took >= deadline:
            return opened
        time.sleep(min(max(took, _PAUSE_SECONDS), deadline - time.monotonic()))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise UsageError(f"--wait {text}: give a number of seconds, for example 5")
    return seconds
