"""Collect runs into a store: fetch new bytes, read the logs, and save the runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stallscope.collector.sources.source import CombinedSource, Source, SourceFile, fingerprint
from stallscope.collector.store.fetch import Progress, copies_folder, fetch, write_json
from stallscope.collector.store.layout import SUMMARY
from stallscope.collector.store.loading import RunOnDisk, load_run
from stallscope.collector.store.manifests import is_collected, read_manifest
from stallscope.collector.store.mirror import Mirror
from stallscope.collector.store.run_folders import save_run
from stallscope.parsers import read
from stallscope.parsers.growing import Growing
from stallscope.parsers.reader import Reads
from stallscope.run import Run

from .analysis_cache import StoredRun, cached_analysis
from .entry import Entry
from .index import Catalogue
from .listing import Baselines

_STATE = "seen.json"


@dataclass(frozen=True)
class Collected:
    """The runs of a source with their folders in the store, the newest first."""

    runs: tuple[tuple[Run, Path], ...]
    #: Whether the source is unchanged since it was last collected.
    unchanged: bool


def collect(
    places: Sequence[Source],
    store: Path,
    *,
    read_as: str | None = None,
    progress: Progress = lambda _new, _total: None,
    engine: Engine | None = None,
) -> Collected:
    """Collect a job's logs into a store.

    Args:
        places: the places of the logs: one place, or the hosts of one job.
        read_as: the name of a parser for every file.
        progress: called with the numbers of bytes that are fetched.
        engine: the engine to use; default: this process.

    Raises:
        NotFoundError, UnreadableError: if there is nothing that can be read.
        UnwritableError: if the store cannot be written.
    """
    engine = engine or Engine()
    state_before = _CollectionState(store, _combine(places))

    def prepare() -> _ListedSource:
        # Read exactly the listed files; files that are written meanwhile come next time.
        return _ListedSource(_combine([engine.prepare(place, store, progress) for place in places]))

    # A mirror has no copies of logs from before, so check for changes before fetching them.
    is_mirror = Mirror.of(store) is not None
    listed = _ListedSource(_combine(places)) if is_mirror else prepare()
    folders = state_before.folders(listed, read_as)
    unchanged = bool(folders)
    if not unchanged:
        listed = prepare() if is_mirror else listed
        folders = engine.save_runs(listed, store, read_as)
        state_before.note(folders, listed, read_as)
    # The store's run may have more logs than this source.
    return Collected(tuple((engine.open_run(folder), folder) for folder in folders), unchanged)


class Engine:
    """Reads logs, saves runs and lists them: in this process, unless a subclass does otherwise."""

    def prepare(self, place: Source, store: Path, progress: Progress) -> Source:
        """Return the place to read: the place itself, or a copy."""
        return place if place.local else fetch(place, store, progress)

    def save_runs(self, place: Source, store: Path, read_as: str | None) -> list[Path]:
        """Save the runs at a place into a store; return their folders."""
        runs = read(place, read_as=read_as, reads=self._reader(place))
        return [save_run(run, store) for run in runs]

    def open_run(self, folder: Path) -> Run:
        """Open a run of the store."""
        # Rows at a URL are loaded on demand.
        return RunOnDisk.open(folder) if Mirror.of(folder.parent) else load_run(folder)

    def list_runs(self, runs: Iterable[tuple[Run, Path]], store: Path) -> None:
        """Add runs to the store's catalogue.

        Call it after collecting all runs, because baselines may come in any order.
        """
        list_runs(runs, store)

    def _reader(self, place: Source) -> Reads | None:
        return None


class FollowingEngine(Engine):
    """Collects the same places repeatedly in this process, reading only the new bytes of step logs."""

    def __init__(self) -> None:
        self._growing: dict[str, Growing] = {}

    def _reader(self, place: Source) -> Reads | None:
        return self._growing.setdefault(place.where, Growing())


def list_runs(
    runs: Iterable[tuple[Run, Path]], store: Path, open_remote: Callable[[Path], Run] | None = None
) -> None:
    """Add runs to the store's catalogue, with summaries of their analyses.

    Call it after collecting all runs, because baselines may come in any order.

    Args:
        open_remote: opens runs of the store that a cluster analyses; default: this process does.
    """
    runs, mirror = list(runs), Mirror.of(store)
    if mirror is not None:
        mirror.update_all(but=(folder.name for _, folder in runs))
    with Catalogue.open(store) as catalogue:
        # Baselines first, because other runs are compared with them.
        for run, folder in sorted(runs, key=lambda collected: not collected[0].synthetic):
            # Look them up again for every run, because the catalogue grows.
            search = Baselines(catalogue)
            baseline = _load(catalogue, search.of(run), open_remote)
            single = _load(catalogue, search.single_of(run), open_remote)
            # Analyses of a cluster are not cached, because the cache has every step.
            stored = (
                StoredRun(open_remote(folder))
                if open_remote
                else StoredRun(run, folder, read_manifest(folder).sha256)
            )
            catalogue.add(Entry.of(run, cached_analysis(stored, baseline, single), folder))
            if mirror is not None:
                mirror.upload_file(f"{folder.name}/{SUMMARY}")


def _load(
    catalogue: Catalogue, entry: Entry | None, open_remote: Callable[[Path], Run] | None
) -> StoredRun | None:
    if entry is None:
        return None
    folder = catalogue.folder_of(entry)
    return (
        StoredRun(open_remote(folder))
        if open_remote
        else StoredRun(load_run(folder), folder, entry.manifest)
    )


class _ListedSource(Source):
    """A place with a fixed list of files."""

    def __init__(self, place: Source) -> None:
        self.where, self.local, self._files = place.where, place.local, place.files()

    def files(self) -> list[SourceFile]:
        return self._files


class _CollectionState:
    """The recorded state of a source: the fingerprint of its files, and the runs that they became."""

    def __init__(self, store: Path, place: Source) -> None:
        self._path = copies_folder(place, store) / _STATE
        self._store, self._mirror = store, Mirror.of(store)

    def folders(self, place: Source, read_as: str | None) -> list[Path]:
        """Return the runs of these files; none if the files have changed or a run was removed."""
        if self._mirror is not None:
            self._mirror.download_file(self._name)
        try:
            content = json.loads(self._path.read_text())
            folders = [self._store / Path(str(name)).name for name in content["runs"]]
            state = content["fingerprint"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        if state != fingerprint(place.files(), read_as):
            return []
        if self._mirror is not None:
            for folder in folders:
                self._mirror.update(folder.name)
        return folders if all(map(is_collected, folders)) else []

    def note(self, folders: Iterable[Path], place: Source, read_as: str | None) -> None:
        state = fingerprint(place.files(), read_as)
        write_json(self._path, {"fingerprint": state, "runs": [folder.name for folder in folders]})
        if self._mirror is not None:
            self._mirror.upload_file(self._name)

    @property
    def _name(self) -> str:
        return self._path.relative_to(self._store).as_posix()


def _combine(places: Sequence[Source]) -> Source:
    return places[0] if len(places) == 1 else CombinedSource(places)
