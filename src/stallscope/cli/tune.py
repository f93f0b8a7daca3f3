"""Recommend Horovod settings, from autotune logs, Timelines and step logs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from glob import has_magic
from pathlib import Path, PurePosixPath

from stallscope.analysis import analyse
from stallscope.analysis.network.tensors import tensors
from stallscope.analysis.tuning import AutotuneFile, TimelineFile, tune
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import Source, SourceFile
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.opening import open_runs, place_warnings
from stallscope.parsers.files.unpacking import beginning, opened
from stallscope.parsers.formats.autotune import MOST_BYTES, is_autotune_log, parse_autotune
from stallscope.parsers.formats.horovod_timeline import HEAD_BYTES, is_timeline, timeline_reader
from stallscope.reports.tuning import FORMATS, parts
from stallscope.run import Run

from . import output
from .main import print_failures, print_warnings
from .output import with_progress
from .progress_bars import show_progress

_STEM = "tune"
_SUFFIXES = (".csv", ".json", ".log", ".txt", ".gz", ".bz2", ".xz", ".zst", ".lz4")
_STEP_LOGS = ".steps.csv"
# The first folder name of a pattern that contains a wildcard.
_MAGIC = re.compile(r"[^/]*[*?\[]")
# Timelines have gigabytes: read remote ones in large requests, because each request has latency.
_REQUEST_BYTES = 8 << 20


@dataclass
class _TuningInputs:
    """The autotune logs, Timelines and runs at the paths."""

    #: Paths of the files that were read: the user may name a file twice.
    read: set[str] = field(default_factory=set)
    autotunes: list[AutotuneFile] = field(default_factory=list)
    timelines: list[TimelineFile] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    #: What could not be read at places where something else could.
    warnings: list[str] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="autotune logs, Horovod Timelines, runs, folders with any of them, or URLs of them",
    )
    output.add_arguments(parser, FORMATS)


def run(options: argparse.Namespace) -> int:
    formats = output.formats_of(options, FORMATS)
    output.refuse_to_overwrite(_STEM, formats, options)
    inputs, failures = _TuningInputs(), []
    for path in with_progress(options.paths, "reading"):
        try:
            _look(path, inputs, options.read_as)
        except StallscopeError as error:
            failures.append(str(error))
    warnings = list(dict.fromkeys(inputs.warnings))
    print_warnings(warnings)
    if inputs.autotunes or inputs.timelines:
        analyses = [analyse(run) for run in with_progress(_distinct(inputs.runs), "analysing")]
        tuning = tune(inputs.autotunes, inputs.timelines, analyses)
        output.show(_STEM, formats, parts(tuning, warnings), options)
    elif inputs.runs:
        known = "steps" if any(run.rows for run in inputs.runs) else "epochs"
        failures.append(
            f"there are logs of {known}, but neither an autotune log nor a Timeline: train a few "
            "thousand steps with HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=autotune.csv"
        )
    return print_failures(failures)


def _look(place: str, inputs: _TuningInputs, read_as: str | None) -> None:
    """Add the files and runs at the place to ``inputs``.

    Raises:
        StallscopeError: if nothing is there, or it cannot be read.
    """
    read, unreadable = _tuning_files(place, inputs)
    if read and _is_file(place, read):
        return
    try:
        runs = open_runs(place, read_as=read_as, show_progress=show_progress)
    except StallscopeError as error:
        if not read or not (isinstance(error, NotFoundError) or str(error) in unreadable):
            raise
        inputs.warnings += [f"{problem}; left out" for problem in unreadable]
    else:
        inputs.runs += runs
        inputs.warnings += place_warnings(runs)


def _tuning_files(place: str, inputs: _TuningInputs) -> tuple[list[SourceFile], list[str]]:
    """Read the autotune logs and Timelines at a place; return their files, and errors of others."""
    try:
        source = open_source(place)
        files = source.files()
    except StallscopeError:
        return [], []  # opening it as a run reports the error
    if not _is_file(place, files):
        files = [file for file in files if file.problem or _may_be_one(file.name)]
    read: list[SourceFile] = []
    unreadable: list[str] = []
    with show_progress("searching", len(files)) as update:
        for done, file in enumerate(files):
            update(done)
            name = _name_of(source, place, file)
            where = str(Path(file.where).resolve()) if source.local else name
            try:
                head = beginning(file, HEAD_BYTES)
            except StallscopeError as error:
                unreadable.append(str(error))
                continue
            if where in inputs.read or _read_tuning_file(file, head, name, inputs):
                inputs.read.add(where)
                read.append(file)
    return read, unreadable


def _read_tuning_file(file: SourceFile, head: bytes, name: str, inputs: _TuningInputs) -> bool:
    """Read the file if it is an autotune log or a Timeline; return whether it is one."""
    if is_autotune_log(head):
        inputs.autotunes.append(
            AutotuneFile(name, parse_autotune(name, beginning(file, MOST_BYTES)))
        )
    elif is_timeline(head):
        timeline = timeline_reader(name, opened(file, _REQUEST_BYTES))
        inputs.timelines.append(TimelineFile(name, tensors(timeline)))
    else:
        return False
    return True


def _is_file(place: str, files: Sequence[SourceFile]) -> bool:
    """Return whether a place is a file, not a folder with one file in it."""
    name = PurePosixPath(place.partition("?")[0]).name
    return len(files) == 1 and files[0].name == name and not Path(place).is_dir()


def _may_be_one(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix in _SUFFIXES and not path.name.endswith(_STEP_LOGS)


def _name_of(source: Source, place: str, file: SourceFile) -> str:
    """Return a file's path relative to the current folder."""
    if source.local:
        path = Path(place)
        return str(path / file.name if path.is_dir() else path if path.is_file() else file.where)
    # For a pattern, the place is the pattern itself.
    return f"{_MAGIC.split(file.where)[0]}{file.name}" if has_magic(file.where) else file.where


def _distinct(runs: Sequence[Run]) -> list[Run]:
    """Return each run once, even if the user named a folder and a log in it."""
    return list({run.id: run for run in runs}.values())
