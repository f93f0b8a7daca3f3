"""Expand RUN arguments to places with one run each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stallscope.catalogue.fingerprints import fingerprint
from stallscope.collector.address import where_is
from stallscope.collector.registry import open_source
from stallscope.collector.store.folders import collected_folder, collected_runs, is_collected
from stallscope.collector.store.manifests import read_manifest
from stallscope.opening import load_collected, runs_at
from stallscope.parsers.progress import ShowProgress, no_progress
from stallscope.run import Run


@dataclass(frozen=True)
class Unit:
    """A place with one run: the folder of a collected run, or any RUN argument."""

    place: str
    collected: bool = False

    @property
    def key(self) -> str:
        """Return the absolute place, which does not depend on the current folder."""
        path, mark, run_id = self.place.partition("#")
        exists = Path(path).exists()
        return f"{where_is(Path(path).resolve())}{mark}{run_id}" if exists else self.place

    @property
    def where(self) -> str:
        """Return the place for messages: a store's URL instead of its mirror."""
        return where_is(Path(self.place)) if self.collected else self.place

    @property
    def local(self) -> bool:
        """Return whether reading it again costs no transfer."""
        return self.collected or open_source(self.place.partition("#")[0]).local

    def fingerprint(self, read_as: str | None) -> str:
        """Return a fingerprint of the run's files and the version of Stallscope.

        Raises:
            NotFoundError, UnreadableError: if the place cannot be listed.
        """
        if self.collected:
            return read_manifest(Path(self.place)).sha256
        return fingerprint(open_source(self.place.partition("#")[0]).files(), read_as)

    def head(self, read_as: str | None, show_progress: ShowProgress = no_progress) -> Run:
        """Return the run with its facts, maybe without tables.

        Raises:
            NotFoundError, UnreadableError: see ``read``.
        """
        if self.collected:
            return load_collected(Path(self.place), with_steps=False)
        return self.read(read_as, show_progress)

    def read(self, read_as: str | None, show_progress: ShowProgress = no_progress) -> Run:
        """Read the run.

        Args:
            read_as: the parser for every file.
            show_progress: shows how many files were read.

        Raises:
            NotFoundError, UnreadableError: if there is nothing that can be read.
        """
        if self.collected:
            return load_collected(Path(self.place))
        return runs_at(self.place, read_as=read_as, show_progress=show_progress)[0]


def units_of(source: str) -> list[Unit]:
    """Return the places of a RUN that ``local_source`` returned: all runs of a store, otherwise one.

    Raises:
        NotFoundError: if the store has no such run.
    """
    place, _, run_id = source.partition("#")
    path = Path(place)
    if is_collected(path):
        return [Unit(place, collected=True)]
    folders = collected_runs(path) if path.is_dir() else []
    if not run_id and folders:
        return [Unit(str(folder), collected=True) for folder in folders]
    return (
        [Unit(str(collected_folder(path, run_id)), collected=True)] if folders else [Unit(source)]
    )
