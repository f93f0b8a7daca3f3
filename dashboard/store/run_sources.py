"""Sources of a dashboard's runs: memory, or a folder of collected runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from stallscope.catalogue.entry import AnalysisSummary, Entry, entry_of_run
from stallscope.catalogue.index import Catalogue, folders_of
from stallscope.collector.run_names import safe_name
from stallscope.collector.store.layout import CATALOGUE, MANIFEST
from stallscope.collector.store.loading import RunOnDisk
from stallscope.collector.store.manifests import is_collected
from stallscope.errors import UnreadableError
from stallscope.opening import place_warnings
from stallscope.run import Run

from ..run_folder import has_logs, log_silence_s

if TYPE_CHECKING:
    from stallscope.batch.units import Unit

    from .refresh import PlaceContents, WatchedPlace


@dataclass(frozen=True)
class SourceContents:
    """The runs of a source, by ids that need no quoting in an address, and its errors."""

    entries: Sequence[tuple[str, Entry]]
    problems: Sequence[str] = ()
    #: By id, the lost fraction of the baseline's throughput, if it is recorded.
    gaps: Mapping[str, float] = field(default_factory=dict)
    #: By id, why a run could not be analysed.
    failures: Mapping[str, str] = field(default_factory=dict)


class RunSource(ABC):
    """A place with runs; its methods are called by many threads at once."""

    #: Ids of the runs that the list shows; the others are only for comparison. None shows all.
    shown: Collection[str] | None = None
    #: Whether its runs are in memory: these are few, and are analysed for the list.
    in_memory = False

    @abstractmethod
    def state(self) -> Hashable:
        """Return a value that changes whenever the contents may have changed.

        Raises:
            StallscopeError: if the source cannot be read.
        """

    @abstractmethod
    def contents(self) -> SourceContents:
        """Return all runs in the order of the list.

        Raises:
            StallscopeError: if the source cannot be read.
        """

    @abstractmethod
    def version(self, entry: Entry) -> Hashable:
        """Return a value that changes with the run.

        Raises:
            UnreadableError: if the run has gone.
        """

    def place(self, entry: Entry) -> Path | None:
        """Return the folder of a collected run; None for other runs."""
        return None

    def silence_s(self, key: str) -> float | None:
        """Return for how many seconds the logs of a run without an end have not grown.

        None for runs whose logs are not watched.
        """
        return None

    def logs_deleted(self, key: str) -> bool:
        """Return whether the logs of a run were deleted while the dashboard shows it."""
        return False

    @abstractmethod
    def load(self, key: str, entry: Entry) -> Run:
        """Load the run.

        Raises:
            UnreadableError: if it was deleted or is damaged.
        """


class RunsInMemory(RunSource):
    """Runs in memory, with summaries of those that were analysed."""

    in_memory = True

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self.runs: dict[str, Run] = {}
        self._versions: dict[str, int] = {}
        # Archives, remote places and simulations have no files to watch.
        self._watched: set[str] = set()
        self._failures: dict[str, str] = {}
        self._entries: dict[str, Entry] = {}
        #: Runs whose rows were not read yet.
        self._heads: set[str] = set()
        #: The place and the unit that a run was read from, and by place what could not be read.
        self._origins: dict[str, tuple[WatchedPlace, Unit]] = {}
        self._problems: dict[WatchedPlace, Sequence[str]] = {}
        for run in runs:
            self.replace(self._free_key(run), run)

    def state(self) -> Hashable:
        return None  # changes are listed by those who make them

    def contents(self) -> SourceContents:
        problems = [problem for of_place in self._problems.values() for problem in of_place]
        problems += place_warnings(self.runs.values())
        return SourceContents(
            list(self._entries.items()),
            list(dict.fromkeys(problems)),
            failures=dict(self._failures),
        )

    def version(self, entry: Entry) -> Hashable:
        return self._versions[entry.folder]

    def load(self, key: str, entry: Entry) -> Run:
        run = self.runs.get(key)
        if run is None or key in self._heads:
            raise UnreadableError(f"{entry.name}: this run has gone since it was listed")
        return run

    def silence_s(self, key: str) -> float | None:
        run = self.runs.get(key)
        return None if run is None else log_silence_s(run)

    def logs_deleted(self, key: str) -> bool:
        run = self.runs.get(key)
        return run is None or (key in self._watched and not has_logs(run))

    def head_of(self, key: str) -> tuple[WatchedPlace, Unit] | None:
        """Return the place and the unit of a run whose rows were not read yet; None for other runs."""
        return self._origins[key] if key in self._heads else None

    def replace(self, key: str, run: Run) -> None:
        """Add a run, or replace it by its new state."""
        self.runs[key] = run
        self._heads.discard(key)
        self._entries[key] = entry_of_run(run, key)
        self._versions[key] = self._versions.get(key, 0) + 1
        self._failures.pop(key, None)
        if has_logs(run):
            self._watched.add(key)

    def update(self, place: WatchedPlace, contents: PlaceContents) -> set[str]:
        """Add and replace the runs of a place, and return the ids of those that have changed.

        Runs whose logs were deleted stay, and their pages say so.
        """
        former = {
            key
            for key, (of_place, unit) in self._origins.items()
            if of_place is place and (unit in contents.runs or unit not in contents.units)
        }
        changed = set(former)
        for unit, runs in contents.runs.items():
            for run in runs:
                key = next((key for key in former if self.runs[key].id == run.id), None)
                former.discard(key or "")
                key = key or self._free_key(run)
                self.replace(key, run)
                self._origins[key] = place, unit
                if unit in contents.heads:
                    self._heads.add(key)
                changed.add(key)
        for key in former:
            if not self.logs_deleted(key):
                # Its logs now belong to another run.
                self._heads.discard(key)
                del self.runs[key], self._entries[key], self._origins[key]
        self._problems[place] = contents.problems
        return changed

    def _free_key(self, run: Run) -> str:
        """Return an id that needs no quoting in an address; copies of one run are numbered."""
        base = safe_name(run.id)
        numbered = (f"{base}-{number}" for number in count(2))
        return next(key for key in chain([base], numbered) if key not in self.runs)

    def summarise(self, key: str, summary: AnalysisSummary) -> None:
        """List a run with the summary of its analysis."""
        self._entries[key] = replace(self._entries[key], summary=summary)
        self._failures.pop(key, None)

    def note_failure(self, key: str, message: str) -> None:
        """List a run with the reason why it could not be analysed."""
        self._failures[key] = message

    def forget_failures(self) -> None:
        """List runs that could not be analysed as not analysed yet."""
        self._failures.clear()


class CollectedRuns(RunSource):
    """Collected runs of a folder, listed from its catalogue and loaded one by one.

    Args:
        store: the folder.
        only: names of the runs' folders to show; the others are only for comparison.
    """

    def __init__(self, store: Path, only: Collection[str] | None = None) -> None:
        self._store = store
        self.shown = None if only is None else {_key_of(name) for name in only}

    def state(self) -> Hashable:
        path = self._store / CATALOGUE
        try:
            stat = path.stat()
        except OSError:
            written = None  # read-only: the list is made in memory
        else:
            written = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        return written, frozenset(folders_of(self._store))

    def contents(self) -> SourceContents:
        with Catalogue.open(self._store) as catalogue:
            entries = catalogue.entries()
            return SourceContents(
                [(_key_of(entry.folder), entry) for entry in entries], catalogue.problems
            )

    def version(self, entry: Entry) -> Hashable:
        try:
            stat = (self.place(entry) / MANIFEST).stat()
        except OSError:
            raise self._gone(entry) from None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def load(self, key: str, entry: Entry) -> Run:
        folder = self.place(entry)
        try:
            return RunOnDisk.open(folder)
        except UnreadableError:
            if not is_collected(folder):
                raise self._gone(entry) from None
            raise

    def place(self, entry: Entry) -> Path:
        # The catalogue is untrusted.
        return self._store / Path(entry.folder).name

    def _gone(self, entry: Entry) -> UnreadableError:
        return UnreadableError(
            f"{self.place(entry)}: this run has gone since it was listed; collect it again, or open "
            "another one"
        )


def _key_of(folder: str) -> str:
    """Return a folder's name as part of an address; names made by Stallscope stay unchanged."""
    safe = safe_name(folder)
    return safe if safe == folder else f"{safe}~{sha256(folder.encode()).hexdigest()[:8]}"
