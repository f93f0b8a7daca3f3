"""From a source to collected runs in a store: fetch what is new, read it, save it whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stallscope import __version__
from stallscope.collector.sources.base import Source, SourceFile
from stallscope.collector.sources.combined import CombinedSource
from stallscope.collector.store.fetch import Progress, copies_folder, fetch, write_json
from stallscope.collector.store.layout import SUMMARY
from stallscope.collector.store.loading import RunOnDisk, load_run
from stallscope.collector.store.manifests import read_manifest
from stallscope.collector.store.mirror import Mirror
from stallscope.collector.store.runs import is_collected, save_run
from stallscope.parsers import read
from stallscope.parsers.growing import Growing
from stallscope.parsers.reader import Reads
from stallscope.run import Run

from . import Catalogue, Entry, baseline_for, single_rank_for
from .analysis_cache import Placed, analysed

_SEEN = "seen.json"


class Engine(Protocol):
    """What reads logs, writes collected runs and lists them."""

    def near(self, place: Source, store: Path, progress: Progress) -> Source:
        """A place as it is read: itself, or a copy."""

    def saved(self, place: Source, store: Path, read_as: str | None) -> list[Path]:
        """Bring the runs at a place into a store; their folders."""

    def opened(self, folder: Path) -> Run:
        """A run of the store."""

    def list_runs(self, runs: Iterable[tuple[Run, Path]], store: Path) -> None:
        """Enter runs into the store's catalogue.

        To be called when all that is collected together is there: baselines may come in any order.
        """


@dataclass(frozen=True)
class Collected:
    """What a source holds: its runs with their folders in the store, the newest first."""

    runs: tuple[tuple[Run, Path], ...]
    #: Whether nothing has changed since the source was collected last.
    unchanged: bool


def collect(
    places: Sequence[Source],
    store: Path,
    *,
    read_as: str | None = None,
    progress: Progress = lambda _new, _total: None,
    engine: Engine | None = None,
) -> Collected:
    """Bring a job's logs into a store.

    Args:
        places: where the logs are: one place, or the hosts of one job.
        read_as: the name of a parser that is to read every file.
        progress: told about bytes that are fetched.
        engine: who does it, where this process does not.

    Raises:
        NotFoundError, UnreadableError: if there is nothing, or nothing that can be read.
        UnwritableError: if the store does not take it.
    """
    engine = engine or Here()
    seen = _Seen(store, _together(places))

    def near() -> _Listed:
        # Read exactly the files whose states are noted: what is written meanwhile comes next time.
        return _Listed(_together([engine.near(place, store, progress) for place in places]))

    # Copies of logs go with a mirror: whether there is anything new is asked before they are fetched.
    is_mirror = Mirror.of(store) is not None
    listed = _Listed(_together(places)) if is_mirror else near()
    folders = seen.folders(listed, read_as)
    unchanged = bool(folders)
    if not unchanged:
        listed = near() if is_mirror else listed
        folders = engine.saved(listed, store, read_as)
        seen.note(folders, listed, read_as)
    # What the store has of a run may be more than what came with this source.
    return Collected(tuple((engine.opened(folder), folder) for folder in folders), unchanged)


class Here:
    """This process."""

    def near(self, place: Source, store: Path, progress: Progress) -> Source:
        return place if place.local else fetch(place, store, progress)

    def saved(self, place: Source, store: Path, read_as: str | None) -> list[Path]:
        runs = read(place, read_as=read_as, reads=self._reads(place))
        return [save_run(run, store) for run in runs]

    def opened(self, folder: Path) -> Run:
        # Rows that are far away come on demand.
        return RunOnDisk.open(folder) if Mirror.of(folder.parent) else load_run(folder)

    def list_runs(self, runs: Iterable[tuple[Run, Path]], store: Path) -> None:
        list_runs(runs, store)

    def _reads(self, place: Source) -> Reads | None:
        return None


class Following(Here):
    """This process, which collects the same places again and again: it holds the logs that it has read,
    and of those that have grown reads what is new.
    """

    def __init__(self) -> None:
        self._growing: dict[str, Growing] = {}

    def _reads(self, place: Source) -> Reads | None:
        return self._growing.setdefault(place.where, Growing())


def list_runs(
    runs: Iterable[tuple[Run, Path]], store: Path, far: Callable[[Path], Run] | None = None
) -> None:
    """Enter runs into the store's catalogue, with what holds each of them back.

    To be called when all that is collected together is there: baselines may come in any order.

    Args:
        far: opens runs of the store whose steps others look at, where this process does not.
    """
    runs, mirror = list(runs), Mirror.of(store)
    if mirror is not None:
        mirror.update_all(but=(folder.name for _, folder in runs))
    with Catalogue.open(store) as catalogue:
        # Baselines first: the runs that came with them are held against them.
        for run, folder in sorted(runs, key=lambda one: not one[0].synthetic):
            found = baseline_for(catalogue, run), single_rank_for(catalogue, run)
            baseline, single = (_loaded(catalogue, one, far) for one in found)
            # What others look at is not remembered here: that has figures of every step and rank.
            own = Placed(far(folder)) if far else Placed(run, folder, read_manifest(folder).sha256)
            catalogue.add(Entry.of(run, analysed(own, baseline, single), folder))
            if mirror is not None:
                mirror.upload_file(f"{folder.name}/{SUMMARY}")


def _loaded(
    catalogue: Catalogue, entry: Entry | None, far: Callable[[Path], Run] | None
) -> Placed | None:
    if entry is None:
        return None
    folder = catalogue.folder_of(entry)
    return Placed(far(folder)) if far else Placed(load_run(folder), folder, entry.manifest)


class _Listed(Source):
    """A place whose files have been listed."""

    def __init__(self, place: Source) -> None:
        self.where, self.local, self._files = place.where, place.local, place.files()

    def files(self) -> list[SourceFile]:
        return self._files


class _Seen:
    """What became of a source's files, and in which state they were then."""

    def __init__(self, store: Path, place: Source) -> None:
        self._path = copies_folder(place, store) / _SEEN
        self._store, self._mirror = store, Mirror.of(store)

    def folders(self, place: Source, read_as: str | None) -> list[Path]:
        """The runs that these very files became; none if one of them has gone, or files changed."""
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


def _together(places: Sequence[Source]) -> Source:
    return places[0] if len(places) == 1 else CombinedSource(places)


def fingerprint(files: Sequence[SourceFile], read_as: str | None) -> str:
    """Changes with every file, and with the Stallscope that may read more in it than the last one."""
    told = [__version__, read_as, [(file.name, file.size, file.version) for file in files]]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
