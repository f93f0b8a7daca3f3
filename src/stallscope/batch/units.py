"""Expand RUN arguments to places that the first pass of a batch reads."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from stallscope.catalogue.fingerprints import fingerprint
from stallscope.collector.address import where_is
from stallscope.collector.recorder.step_log.format import SUFFIX, header_facts
from stallscope.collector.registry import open_source
from stallscope.collector.run_names import RunAddress
from stallscope.collector.sources.base import is_companion_file
from stallscope.collector.store.folders import collected_folder, collected_runs, is_collected
from stallscope.collector.store.manifests import read_manifest
from stallscope.errors import StallscopeError
from stallscope.opening import load_collected, runs_at
from stallscope.parsers.progress import ShowProgress, no_progress
from stallscope.parsers.runs.launches import Launch, by_launch
from stallscope.run import Run

# A first line has some kilobytes.
_MOST_BYTES = 1 << 20
# Files next to the folders of jobs that are no logs.
_NO_LOGS = (
    ".py",
    ".sh",
    ".md",
    ".html",
    ".png",
    ".svg",
    ".pdf",
    ".yaml",
    ".yml",
    ".toml",
    ".ipynb",
)


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


def units_of(address: RunAddress) -> list[Unit]:
    """Return the places of an address that ``local_address`` returned.

    These are the runs of a store, or the folders of a folder's jobs; otherwise the place itself.

    Raises:
        NotFoundError: if the store has no such run.
    """
    path = Path(address.place)
    if is_collected(path):
        return [Unit(address.place, collected=True)]
    in_store = collected_runs(path)
    if in_store:
        chosen = [collected_folder(path, address.run)] if address.run else in_store
        return [Unit(str(folder), collected=True) for folder in chosen]
    if not address.run and path.is_dir():
        folders = _job_folders(path)
        if len(folders) > 1:
            return [Unit(str(folder)) for folder in folders]
    return [Unit(address.place, run=address.run)]


class _Log(NamedTuple):
    folder: Path
    launch: Launch


def _job_folders(path: Path) -> list[Path]:
    """Return the folders of a folder's jobs, the newest first.

    They are read one by one, in less memory. Empty if jobs share a folder, or if other files are next to
    them, which may be about any job.
    """
    logs: dict[str, list[_Log]] = defaultdict(list)
    rest: list[Path] = []
    try:
        files = [file.name for file in open_source(str(path)).files()]
    except StallscopeError:
        return []  # reading the place reports the error
    for name in files:
        try:
            run_id, launch = _first_line(path / name)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            if not is_companion_file(name) and not name.endswith(_NO_LOGS):
                rest.append(path / name)
        else:
            logs[run_id].append(_Log((path / name).parent, launch))
    jobs = by_launch(logs, lambda log: log.launch)
    began: dict[Path, int] = {}
    for job in jobs.values():
        folders = {log.folder for log in job}
        if len(folders) > 1 or not folders.isdisjoint(began):
            return []
        began[folders.pop()] = max(log.launch.began_ns for log in job)
    nested = any(not began.keys().isdisjoint(folder.parents) for folder in began)
    outside = any(began.keys().isdisjoint(file.parents) for file in rest)
    return [] if nested or outside else sorted(began, key=lambda folder: -began[folder])


def _first_line(file: Path) -> tuple[str, Launch]:
    """Return a step log's run id, and what it says about its launch."""
    if not file.name.endswith(SUFFIX):
        raise ValueError("no step log")
    with file.open("rb") as opened:
        facts: dict[str, Any] = header_facts(opened.readline(_MOST_BYTES))
    rank, began_ns = int(facts["rank"]), int(facts["anchor"]["wall_ns"])
    return str(facts["run_id"]), Launch.of_log(facts.get("launch"), rank, began_ns)
