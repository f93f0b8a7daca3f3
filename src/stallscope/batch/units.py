"""Expand RUN arguments to places that the first pass of a batch reads, and hold a batch's settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stallscope.analysis import Analysis
from stallscope.collector.recorder.step_log.line_format import SUFFIX, header_facts
from stallscope.collector.run_names import RunAddress
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import SourceFile, fingerprint, is_companion_file
from stallscope.collector.store.layout import where_is
from stallscope.collector.store.manifests import (
    collected_folder,
    collected_runs,
    is_collected,
    read_manifest,
)
from stallscope.errors import StallscopeError
from stallscope.opening import load_collected, runs_at, store_warnings
from stallscope.parsers.base import ShowProgress, no_progress
from stallscope.parsers.reader import read_head
from stallscope.parsers.runs.grouping import Launch, by_launch
from stallscope.reports.report_formats import ReportOptions
from stallscope.run import Run
from stallscope.words import Fix

# A first line has some kilobytes.
_USUAL_BYTES, _MOST_BYTES = 64 << 10, 1 << 20

#: Files in a folder, one JSON array, or summaries for a terminal.
Output = Literal["files", "json", "terminal"]


@dataclass(frozen=True)
class Unit:
    """A place to read: the folder of a collected run, or logs of one or several runs."""

    place: str
    collected: bool = False
    #: The run that is meant; empty for all runs of the place.
    run: str = ""

    @property
    def place_key(self) -> str:
        """Return the absolute place, which does not depend on the current folder."""
        path = Path(self.place)
        return where_is(path.resolve()) if path.exists() else self.place

    @property
    def key(self) -> str:
        """Return the absolute place with the run."""
        return str(RunAddress(self.place_key, self.run))

    @property
    def where(self) -> str:
        """Return the place for messages: a store's URL instead of its mirror."""
        if self.collected:
            return where_is(Path(self.place))
        return str(RunAddress(self.place, self.run))

    @property
    def local(self) -> bool:
        """Return whether reading it again costs no transfer."""
        return self.collected or open_source(self.place).local

    def fingerprint(self, read_as: str | None) -> str:
        """Return a fingerprint of the place's files and the version of Stallscope.

        Raises:
            NotFoundError, UnreadableError: if the place cannot be listed.
        """
        if self.collected:
            return read_manifest(Path(self.place)).sha256
        return fingerprint(open_source(self.place).files(), read_as)

    def of_run(self, run_id: str) -> Unit:
        """Return the place with one of its runs."""
        return replace(self, run=run_id)

    def heads(self, read_as: str | None, show_progress: ShowProgress = no_progress) -> list[Run]:
        """Return the place's runs with their facts; collected runs without tables.

        Raises:
            NotFoundError, UnreadableError: see ``read``.
        """
        if self.collected:
            return [load_collected(Path(self.place), with_steps=False)]
        return self.read(read_as, show_progress)

    def head(self) -> Run | None:
        """Return the run of a folder of step logs without its rows; see ``read_head``.

        None for all other places.
        """
        return None if self.collected or self.run else read_head(self.place)

    def read(self, read_as: str | None, show_progress: ShowProgress = no_progress) -> list[Run]:
        """Read the place's runs, or the one that is meant.

        Args:
            read_as: the parser for every file.
            show_progress: shows how many files were read.

        Raises:
            NotFoundError, UnreadableError: if there is nothing that can be read.
        """
        if self.collected:
            return [load_collected(Path(self.place))]
        address = RunAddress(self.place, self.run)
        return runs_at(address, read_as=read_as, show_progress=show_progress)


def units_of(
    address: RunAddress, warn: Callable[[str], object] = lambda _warning: None
) -> list[Unit]:
    """Return the places of an address that ``local_address`` returned.

    These are the runs of a store, or the folders of a folder's jobs; otherwise the place itself.

    Args:
        address: a RUN.
        warn: called for everything that cannot be read, if there are several places: their runs do not
            know of it.

    Raises:
        NotFoundError: if the store has no such run.
    """
    path = Path(address.place)
    if is_collected(path):
        return [Unit(address.place, collected=True)]
    in_store = collected_runs(path)
    if in_store:
        chosen = [collected_folder(path, address.run)] if address.run else in_store
        for warning in store_warnings(path):
            warn(warning)
        return [Unit(str(folder), collected=True) for folder in chosen]
    if not address.run and path.is_dir():
        folders = _job_folders(path, warn)
        if len(folders) > 1:
            return [Unit(str(folder)) for folder in folders]
    return [Unit(address.place, run=address.run)]


class _Log(NamedTuple):
    folder: Path
    launch: Launch


def _job_folders(path: Path, warn: Callable[[str], object]) -> list[Path]:
    """Return the folders of a folder's jobs, the newest first.

    They are read one by one, in less memory. Empty if jobs share a folder, or if other files are next to
    them, which may be about any job.
    """
    logs: dict[str, list[_Log]] = defaultdict(list)
    rest: list[Path] = []
    warnings: list[str] = []
    try:
        files = open_source(str(path)).files()
    except StallscopeError:
        return []  # reading the place reports the error
    for file in files:
        try:
            run_id, launch = _first_line(file)
        except StallscopeError as error:
            warnings.append(f"{error}; left out")
        except (ValueError, KeyError, TypeError, AttributeError):
            if not is_companion_file(file.name):
                rest.append(path / file.name)
        else:
            logs[run_id].append(_Log((path / file.name).parent, launch))
    began: dict[Path, int] = {}
    for job in by_launch(logs, lambda log: log.launch).values():
        folders = {log.folder for log in job}
        if len(folders) > 1 or not folders.isdisjoint(began):
            return []
        began[folders.pop()] = max(log.launch.began_ns for log in job)
    nested = any(not began.keys().isdisjoint(folder.parents) for folder in began)
    outside = any(began.keys().isdisjoint(file.parents) for file in rest)
    if nested or outside:
        return []
    if len(began) > 1:
        for warning in warnings:
            warn(warning)
    return sorted(began, key=lambda folder: -began[folder])


def _first_line(file: SourceFile) -> tuple[str, Launch]:
    """Return a step log's run id, and what it says about its launch."""
    if not (file.name.endswith(SUFFIX) or file.problem):
        raise ValueError("no step log")
    start = file.read(0, _USUAL_BYTES)
    if b"\n" not in start:
        start = file.read(0, _MOST_BYTES)
    facts: dict[str, Any] = header_facts(start.partition(b"\n")[0])
    rank, began_ns = int(facts["rank"]), int(facts["anchor"]["wall_ns"])
    return str(facts["run_id"]), Launch.of_log(facts.get("launch"), rank, began_ns)


# -- The settings of a batch, which every process of it receives ----------------------------------


@dataclass(frozen=True)
class Settings:
    """Settings for reading, analysing and reporting runs."""

    output: Output
    report: ReportOptions
    #: A temporary folder of this batch, for copies of remote runs and documents to print.
    scratch: Path
    out: Path
    formats: tuple[str, ...] = ()
    read_as: str | None = None
    #: Bus bandwidth of the network, GB/s.
    bandwidth: float | None = None
    #: The values of ``--what-if``.
    questions: tuple[Fix, ...] = ()
    #: The values of ``--fail-if``.
    conditions: tuple[str, ...] = ()
    anonymous: bool = False
    #: Whether to render single reports as Markdown, too.
    markdown: bool = False
    #: Called with every analysis and its run's source; returns a message.
    afterwards: Callable[[Analysis, str], str] | None = None
    #: Whether there are several runs: then no run stays in memory between the passes.
    many: bool = False
    #: Whether to only redo reports that have changed since the last time.
    resumable: bool = False

    @property
    def asks_for_ranks(self) -> bool:
        """Whether a question needs other runs of the batch."""
        return any(question.kind == "ranks" for question in self.questions)

    def of(self, count: int) -> Settings:
        """Return the settings for this many runs; a single run is always reported in full."""
        many = count > 1
        return replace(
            self,
            many=many,
            resumable=many and self.output == "files",
            markdown=self.markdown and not many,
        )

    @property
    def report_inputs(self) -> tuple[object, ...]:
        """Return all inputs of reports other than their runs."""
        return (
            self.report.version,
            sorted(self.formats),
            self.read_as,
            self.bandwidth,
            tuple(map(str, self.questions)),
            self.conditions,
            self.anonymous,
            self.afterwards is not None,
        )
