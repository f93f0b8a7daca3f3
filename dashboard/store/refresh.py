"""Read logs again: of runs that are still being recorded, and in folders that have changed.

A user's request starts it, and it takes a small share of the time, however much there is to read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from stallscope.batch.units import Unit, units_of
from stallscope.collector.run_names import RunAddress
from stallscope.errors import StallscopeError, UnreadableError
from stallscope.opening import place_warnings
from stallscope.parsers import read
from stallscope.parsers.base import ShowProgress, no_progress
from stallscope.run import Run

from ..run_folder import recording_folder

# A run is read again after a pause of this many times the time that reading and analysing it took:
# viewing its pages uses a small share of the machine, however long the run is. So are a place's folders.
_PAUSE = 10.0
# Places with more folders are read once.
_MOST_FOLDERS = 10_000

# The folders at or below a place, each with its last change; None if permissions keep it closed.
_Folders = Mapping[str, "int | None"]


@dataclass
class _LogState:
    """The state of a run's logs when they were read last. One thread at a time reads them."""

    lock: Lock = field(default_factory=Lock)
    files: Hashable = None
    #: When the logs were read last, and the clock before which they are not read again.
    read_at: datetime | None = None
    not_before: float = 0.0


class Refresher:
    """Reads runs again if their logs have grown.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._states: dict[str, _LogState] = {}

    def register(self, key: str, run: Run) -> None:
        """Note that a run was opened while it was being recorded.

        The sizes of its logs are not taken: rows that came after it was read would count as read.
        """
        if recording_folder(run) is not None:
            self._state(key).read_at = datetime.now(UTC)

    def read_at(self, key: str) -> datetime | None:
        """Return when a run that is being recorded was read last; None for all other runs."""
        state = self._states.get(key)
        return None if state is None else state.read_at

    def refreshed(self, key: str, run: Run) -> Run | None:
        """Read a run again; None if its logs have not changed or were read recently."""
        folder = recording_folder(run)
        state = self._state(key)
        if folder is None or self._clock() < state.not_before:
            return None
        # While one thread reads, the others show the previous state.
        if not state.lock.acquire(blocking=False):
            return None
        try:
            files = _files(folder, run)
            if files == state.files:
                return None
            start = self._clock()
            grown = _read(run)
            if grown is not None:
                state.files, state.read_at = files, datetime.now(UTC)
            self.add_cost(key, self._clock() - start)
            return grown
        finally:
            state.lock.release()

    def add_cost(self, key: str, seconds: float) -> None:
        """Delay the next read by a multiple of the time that reading or analysing a run took."""
        state = self._states.get(key)
        if state is not None:
            state.not_before = max(state.not_before, self._clock()) + _PAUSE * seconds

    def _state(self, key: str) -> _LogState:
        with self._lock:
            return self._states.setdefault(key, _LogState())


def _read(run: Run) -> Run | None:
    try:
        return next((current for current in read(run.source) if current.id == run.id), None)
    except StallscopeError:
        return None  # keep showing the previous state


def _files(folder: Path, run: Run) -> Hashable:
    """Return names and sizes of all files in the folders of a run's logs."""
    files = []
    for log_folder in sorted({(folder / log.path).parent for log in run.logs}):
        try:
            with os.scandir(log_folder) as entries:
                files += [
                    (entry.path, entry.stat().st_size) for entry in entries if entry.is_file()
                ]
        except OSError:
            continue  # deleted; the run's page shows the rest
    return tuple(sorted(files))


@dataclass(frozen=True)
class PlaceContents:
    """The runs of a place that were read at one look, and what could not be read."""

    #: By unit, the runs of those units that are new or have changed.
    runs: Mapping[Unit, Sequence[Run]]
    #: All units of the place.
    units: frozenset[Unit]
    #: Error messages about units that cannot be read, and warnings about what is in no unit.
    problems: Sequence[str]
    #: The units whose runs are without their rows; see ``WatchedPlace.read_rest``.
    heads: frozenset[Unit] = frozenset()


class WatchedPlace:
    """The place of a RUN argument with logs, whose folders are looked at again.

    Adding, removing or renaming a file changes its folder. Appended rows do not: ``Refresher`` reads
    them. Of several runs, the first look reads only what the list shows; ``read_rest`` reads the rows
    of one.

    Args:
        address: the argument; a place with a name is read once.
        read_as: the parser for every file.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        address: RunAddress,
        read_as: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._read_as, self._clock = address, read_as, clock
        self._lock = Lock()
        self._not_before = 0.0
        #: Whether later looks may find changes.
        self.is_watched = not address.run and Path(address.place).is_dir()
        self._folders: _Folders | None = None
        #: The states of the units when they were read.
        self._states: dict[Unit, Hashable] = {}
        self._warnings: Sequence[str] = ()
        self._failures: dict[Unit, str] = {}
        #: The sizes of the files of units that were not read as a whole: they may have been incomplete.
        self._incomplete: dict[Unit, Hashable] = {}

    @property
    def failures(self) -> list[str]:
        """The error messages of the last look."""
        return [*self._failures.values()]

    def read_rest(self, unit: Unit) -> PlaceContents:
        """Read a unit with its rows.

        Raises:
            UnreadableError: if the logs were deleted, or their rows cannot be read.
        """
        read_unit = _read_unit(unit, self._read_as)
        if read_unit.failure is not None:
            raise UnreadableError(read_unit.failure)
        runs: dict[Unit, Sequence[Run]] = {}
        with self._lock:
            self._note(unit, read_unit, runs)
            return self._contents(runs)

    def look(self, show_progress: ShowProgress = no_progress) -> PlaceContents | None:
        """Read the units that have come or changed since the last look.

        Returns:
            None if nothing has changed, or the place was looked at recently. The first look reads all.
        """
        # While one thread reads, the others show the previous state.
        if self._clock() < self._not_before or not self._lock.acquire(blocking=False):
            return None
        try:
            first, start = not self._states, self._clock()
            contents = self._look(show_progress)
            end = self._clock()
            if not first:
                # The first look reads all, later ones only what is new.
                self._not_before = end + _PAUSE * (end - start)
            return contents
        finally:
            self._lock.release()

    def _look(self, show_progress: ShowProgress) -> PlaceContents | None:
        if self._states and not self.is_watched:
            return None
        folders = _folders_below(self._address.place) if self.is_watched else {}
        warnings: list[str] = []
        if folders is None:
            self.is_watched, folders = False, {}
            warnings.append(
                f"{self._address.place}: it has more than {_MOST_FOLDERS:,} folders, which are read "
                "once: to see new runs, start the dashboard again"
            )
        grown = {unit for unit, sizes in self._incomplete.items() if _sizes(unit) != sizes}
        if folders == self._folders and not grown:
            return None
        units = units_of(self._address, warnings.append)
        states = _states_of(units, folders)
        changed = [
            unit
            for unit in units
            if unit in grown or self._states.get(unit, _NEVER) != states[unit]
        ]
        # Rows take nine tenths of the time, and the list of many runs does without.
        heads_suffice = not self._states and len(units) > 1 and self._read_as is None
        runs: dict[Unit, Sequence[Run]] = {}
        heads: set[Unit] = set()
        with show_progress("reading", len(changed)) as update:
            for done, unit in enumerate(changed):
                update(done)
                head = unit.head() if heads_suffice else None
                if head is None:
                    self._note(unit, _read_unit(unit, self._read_as), runs)
                else:
                    runs[unit] = [head]
                    heads.add(unit)
        self._folders, self._states = folders, states
        self._warnings = tuple(dict.fromkeys(warnings))
        for former in self._failures.keys() | self._incomplete.keys():
            if former not in states:
                self._failures.pop(former, None)
                self._incomplete.pop(former, None)
        return self._contents(runs, heads)

    def _contents(
        self, runs: Mapping[Unit, Sequence[Run]], heads: Collection[Unit] = ()
    ) -> PlaceContents:
        problems = [*self.failures, *self._warnings]
        return PlaceContents(runs, frozenset(self._states), problems, frozenset(heads))

    def _note(self, unit: Unit, read_unit: _UnitRead, runs: dict[Unit, Sequence[Run]]) -> None:
        """Add a unit's runs; note its error, and its files' sizes if it was not read as a whole."""
        self._failures.pop(unit, None)
        self._incomplete.pop(unit, None)
        if read_unit.failure is not None:
            self._failures[unit] = read_unit.failure
        else:
            runs[unit] = read_unit.runs
        if read_unit.failure is not None or place_warnings(read_unit.runs):
            self._incomplete[unit] = read_unit.sizes


class _UnitRead(NamedTuple):
    """The runs of a unit, or why it cannot be read, and the sizes of its files."""

    runs: Sequence[Run]
    failure: str | None
    sizes: Hashable


def _read_unit(unit: Unit, read_as: str | None) -> _UnitRead:
    # Taken before: what comes while it is read is read at the next look.
    sizes = _sizes(unit)
    try:
        return _UnitRead(unit.read(read_as), None, sizes)
    except StallscopeError as error:
        return _UnitRead((), str(error), sizes)


# The state of a unit that was never read.
_NEVER = object()


def _folders_below(place: str) -> _Folders | None:
    """Return the folders of a place and when each has changed; None if there are too many."""
    folders: dict[str, int | None] = {}
    remaining = [place]
    while remaining:
        folder = remaining.pop()
        try:
            # Before its names are read: what comes in between changes it again.
            changed_ns = os.stat(folder).st_mtime_ns  # noqa: PTH116
            with os.scandir(folder) as entries:
                remaining += [
                    entry.path for entry in entries if entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            folders[folder] = None
        else:
            folders[folder] = changed_ns
        if len(folders) + len(remaining) > _MOST_FOLDERS:
            return None
    return folders


def _states_of(units: Sequence[Unit], folders: _Folders) -> dict[Unit, Hashable]:
    """Return the folders of each unit with their changes."""
    by_place = {Path(unit.place): unit for unit in units}
    states: dict[Unit, list[Hashable]] = {unit: [] for unit in units}
    for folder, changed_ns in folders.items():
        path = Path(folder)
        unit = next((by_place[part] for part in (path, *path.parents) if part in by_place), None)
        if unit is not None:
            states[unit].append((folder, changed_ns))
    return {unit: frozenset(state) for unit, state in states.items()}


def _sizes(unit: Unit) -> Hashable:
    """Return the files below a unit's local folder with their sizes and changes."""
    sizes = []
    for folder, _, names in os.walk(unit.place):
        for name in names:
            with suppress(OSError):
                stat = Path(folder, name).stat()
                sizes.append((folder, name, stat.st_size, stat.st_mtime_ns))
    return frozenset(sizes)
