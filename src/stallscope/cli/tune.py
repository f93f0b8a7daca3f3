"""Which of Horovod's settings to fix: from autotune logs, Timelines and step logs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from stallscope.analysis import analyse
from stallscope.analysis.tensors import tensors
from stallscope.analysis.tuning import AutotuneFile, TimelineFile, tune
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.parsers.autotune import is_autotune_file, read_autotune
from stallscope.parsers.horovod_timeline import is_timeline_file, open_timeline
from stallscope.reports.base import ReportOptions
from stallscope.reports.tuning import FORMATS, render
from stallscope.reports.tuning.terminal import tuning_summary
from stallscope.run import Run
from stallscope.runs import open_runs

from . import output
from .bars import watching
from .main import FAILED, FINE
from .opening import with_progress

_STEM = "tune"
_FORMATS = tuple(FORMATS)
_SUFFIXES = (".csv", ".json", ".log", ".txt", ".gz", ".bz2", ".xz", ".zst", ".lz4")


@dataclass
class _Found:
    """What is at the paths."""

    #: Files that were read already, which may be named twice.
    read: set[Path] = field(default_factory=set)
    autotunes: list[AutotuneFile] = field(default_factory=list)
    timelines: list[TimelineFile] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="autotune logs, Horovod Timelines, runs, or folders with any of them",
    )
    output.add_arguments(parser, _FORMATS)


def run(options: argparse.Namespace) -> int:
    formats = output.formats_of(options, _FORMATS)
    output.refuse_to_overwrite(_STEM, formats, options)
    found, failures = _Found(), []
    for path in with_progress(options.paths, "reading"):
        try:
            _look(path, found, options.read_as)
        except StallscopeError as error:
            failures.append(str(error))
    if found.autotunes or found.timelines:
        analyses = [analyse(one) for one in with_progress(_different(found.runs), "analysing")]
        tuning = tune(found.autotunes, found.timelines, analyses)
        made = ReportOptions(generated_at=datetime.now(UTC))
        output.show(
            _STEM,
            formats,
            lambda name: render(name, tuning, made),
            lambda: tuning_summary(tuning),
            options,
        )
    elif found.runs:
        failures.append(
            "there are step logs here, and neither an autotune log nor a Timeline: train some thousand "
            "steps with HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=autotune.csv"
        )
    for failure in failures:
        print(f"stallscope: {failure}", file=sys.stderr)
    return FAILED if failures else FINE


def _look(place: str, found: _Found, read_as: str | None) -> None:
    """Whatever is there.

    Raises:
        StallscopeError: if nothing is, or what is there cannot be read.
    """
    path = Path(place)
    if path.is_file() and _take(path, found):
        return
    beside = _taken(path, found) if path.is_dir() else []
    try:
        found.runs += open_runs(place, read_as=read_as, watching=watching)
    except NotFoundError:
        if not beside:
            raise


def _taken(folder: Path, found: _Found) -> list[Path]:
    """The autotune logs and Timelines in a folder."""
    files = list(_files(folder))
    taken = []
    with watching("looking", len(files)) as watch:
        for done, one in enumerate(files):
            watch(done)
            if _take(one, found):
                taken.append(one)
    return taken


def _take(path: Path, found: _Found) -> bool:
    """Whether it is an autotune log or a Timeline; then it is read."""
    if path.resolve() in found.read:
        return True
    if is_autotune_file(path):
        found.autotunes.append(AutotuneFile(str(path), read_autotune(path)))
    elif is_timeline_file(path):
        with open_timeline(path) as timeline:
            found.timelines.append(TimelineFile(str(path), tensors(timeline)))
    else:
        return False
    found.read.add(path.resolve())
    return True


def _files(folder: Path) -> Iterator[Path]:
    return (one for one in sorted(folder.rglob("*")) if one.suffix in _SUFFIXES and one.is_file())


def _different(runs: Sequence[Run]) -> list[Run]:
    """Each run once, also where a folder and a log in it were both named."""
    return list({one.id: one for one in runs}.values())
