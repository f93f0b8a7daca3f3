"""Export a run as a trace for timeline viewers, as a table, or as series for TensorBoard and others."""

from __future__ import annotations

import argparse
from pathlib import Path

from stallscope.errors import UsageError
from stallscope.exports import registry
from stallscope.exports.generations import exported_run
from stallscope.exports.selection import Selection, parse_ranks
from stallscope.exports.write import check_path, place_of, write_export
from stallscope.opening import open_run

from .bars import show_progress
from .main import SUCCESS, add_read_as
from .opening import with_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="a folder with logs, a log, a URL, or a collected run"
    )
    parser.add_argument(
        "--format", metavar="NAME", required=True, help=f"one of {', '.join(registry.names())}"
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
    add_read_as(parser)


def run(options: argparse.Namespace) -> int:
    export = registry.by_name(options.format)
    selection = _selection(options)
    place = place_of(export, options.out)
    check_path(export, place, options.force)
    export.check()
    for source in with_progress([options.run], "reading"):
        exported = exported_run(
            open_run(source, read_as=options.read_as, show_progress=show_progress), selection
        )
    for _ in with_progress([export], "exporting"):
        written = write_export(export, exported, place, options.force)
    print(written)
    return SUCCESS


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
