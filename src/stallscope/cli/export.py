"""Export a run as a trace for timeline viewers, as a table, or as series for TensorBoard and others."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stallscope.collector.run_names import RunAddress
from stallscope.errors import StallscopeError, UsageError
from stallscope.exports import export_formats
from stallscope.exports.export_formats import check_path, place_of, write_export
from stallscope.exports.exported_run import Selection, exported_run, parse_ranks
from stallscope.exports.live import follow_into
from stallscope.opening import open_runs, several_runs_error
from stallscope.run import Run

from .main import SUCCESS, add_read_as
from .output import open_one, with_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="a folder with logs, a log, a URL, or a collected run"
    )
    parser.add_argument(
        "--format",
        metavar="NAME",
        required=True,
        help=f"one of {', '.join(export_formats.names())}",
    )
    parser.add_argument(
        "--out",
        metavar="PLACE",
        type=Path,
        required=True,
        help="the file to write, compressed if its name ends with .gz and the format is not; for "
        "tensorboard and wandb a folder, for mlflow mlflow:RUN_ID",
    )
    parser.add_argument("--from", dest="first", metavar="STEP", help="the first step to export")
    parser.add_argument("--to", dest="last", metavar="STEP", help="the last step to export")
    parser.add_argument("--ranks", metavar="LIST", help="ranks to export: 0,3,8-15 for example")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--follow",
        action="store_true",
        help="append to tensorboard, wandb or mlflow while the run trains, until it has completed",
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        default="5",
        help="with --follow: seconds between two looks, or more for long runs (default: 5)",
    )
    add_read_as(parser)


def run(options: argparse.Namespace) -> int:
    export = export_formats.by_name(options.format)
    selection = _selection(options)
    if options.follow:
        return _follow(options, selection)
    place = place_of(export, options.out)
    check_path(export, place, options.force)
    export.check()
    exported = exported_run(open_one(options.run, options.read_as), selection)
    for _ in with_progress([export], "exporting"):
        written = write_export(export, exported, place, options.force)
    print(written)
    return SUCCESS


def _follow(options: argparse.Namespace, selection: Selection) -> int:
    if options.first is not None or options.last is not None:
        raise UsageError("--follow appends all steps: leave out --from and --to")
    try:
        interval_s = float(options.interval)
    except ValueError:
        interval_s = -1.0
    if not 0 < interval_s < 1e6:
        raise UsageError(f"--interval {options.interval}: give a number of seconds, for example 5")
    ended = threading.Event()
    # The last look, and closing the series, take a moment.
    with _signals(ended):
        follow_into(
            options.format,
            str(options.out),
            FollowedRun(options.run, options.read_as),
            selection,
            interval_s,
            ended.wait,
        )
    print(options.out)
    return SUCCESS


class FollowedRun:
    """Opens the run of a RUN argument again and again: the same one, though later jobs log there, too.

    Raises:
        NotFoundError: if the place has several runs at first.
    """

    def __init__(self, source: str, read_as: str | None) -> None:
        self._source, self._read_as = source, read_as
        self._run_id = ""
        # The first lines of a log may not be written yet.
        with suppress(StallscopeError):
            ids = [run.id for run in open_runs(source, read_as=read_as)]
            self._run_id = ids[0]
        if self._run_id and len(ids) > 1:
            raise several_runs_error(source, ids)

    def __call__(self) -> Run:
        address = RunAddress.parse(self._source)
        if self._run_id:
            address = address._replace(run=self._run_id)
        (run, *_) = open_runs(address, read_as=self._read_as)
        self._run_id = run.id
        return run


@contextmanager
def _signals(ended: threading.Event) -> Iterator[None]:
    """Set the event at Ctrl-C and SIGTERM."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: ended.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _selection(options: argparse.Namespace) -> Selection:
    first, last = _step("--from", options.first), _step("--to", options.last)
    if first is not None and last is not None and first > last:
        raise UsageError(f"--from {first} --to {last}: the last step comes before the first")
    return Selection(first, last, None if options.ranks is None else parse_ranks(options.ranks))


def _step(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise UsageError(f"{option} {text}: give the number of a step, for example 1200")
    return int(text)
