"""What Horovod wrote beside a run's logs: its Timeline and its autotuner's log."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from typing import TypeVar

from stallscope.analysis.network.tensors import Tensors, tensors
from stallscope.errors import UnreadableError
from stallscope.parsers.autotune import AutotuneLog, is_autotune_log, read_autotune
from stallscope.parsers.horovod_timeline import is_timeline, timeline_reader
from stallscope.parsers.unpacking import is_packed, unpacking
from stallscope.run import Run

from .store.cache import Cache

# Longer timelines, and compressed ones, take seconds: the page does not wait for them.
_AWAITED_BYTES = 64 << 20
_HEAD_BYTES = 4096
_TIMELINE_SUFFIXES = (".json", ".json.gz", ".json.bz2", ".json.xz", ".json.zst")
# Files whose heads are looked at, folders of one run, and entries of one folder.
_MOST_HEADS, _MOST_FOLDERS, _MOST_ENTRIES = 200, 64, 4096
_OWN_FOLDERS = ("timeline", "autotune")
_AUTOTUNE_SUFFIXES = (".csv", ".log", ".txt")

_MOST_KEPT = 8
_READ = Cache(_MOST_KEPT)

T = TypeVar("T")


@dataclass(frozen=True)
class TimelineSeen:
    """A timeline that was read to its end."""

    path: Path
    #: Bytes of the file.
    size: int
    #: Wall clock, microseconds since 1970, at its time 0; None before Horovod 0.20.1.
    start_us: int | None
    tensors: Tensors
    #: Events that could not be read or do not fit together, and activities without an end.
    damaged: int
    unfinished: int


@dataclass(frozen=True)
class TimelineReading:
    """A timeline that is being read."""

    path: Path
    #: Bytes of the file, and those of them that were read so far.
    size: int
    read: int


@dataclass(frozen=True)
class AutotuneSeen:
    path: Path
    log: AutotuneLog


def folder_of(run: Run) -> Path | None:
    """The local folder that a run was read from; None where it is elsewhere, or has gone."""
    if "://" in run.source:
        return None
    place = Path(run.source)
    try:
        return place if place.is_dir() else place.parent if place.is_file() else None
    except (OSError, ValueError):
        return None


def timeline_beside(
    run: Run, *, again: bool = True, awaited_bytes: int = _AWAITED_BYTES
) -> TimelineSeen | TimelineReading | None:
    """The newest Horovod Timeline beside a run's logs; None without one.

    A long one is read by a thread of its own, once for all callers; later callers get it.

    Args:
        again: whether it is to be read again where it has changed since it was read last.
        awaited_bytes: how long it may be for the caller to wait for it.

    Raises:
        UnreadableError: if there is one that cannot be read.
    """
    path = _newest(run, _TIMELINE_SUFFIXES, is_timeline)
    return None if path is None else _TIMELINES.of(path, again, awaited_bytes)


def autotune_beside(run: Run) -> AutotuneSeen | None:
    """The newest autotune log beside a run's logs; None without one.

    Raises:
        StallscopeError: if there is one that cannot be read.
    """
    path = _newest(run, _AUTOTUNE_SUFFIXES, is_autotune_log)
    return None if path is None else _kept(path, lambda: AutotuneSeen(path, read_autotune(path)))


def _kept(path: Path, make: Callable[[], T]) -> T:
    try:
        now = path.stat()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None
    return _READ.get((path, *_state(now)), make)


class _Work:
    """One timeline, from the moment when its reading begins."""

    def __init__(self, path: Path, state: os.stat_result) -> None:
        self.state = _state(state)
        self.future: Future[TimelineSeen] = Future()
        self._path = path
        self._size = state.st_size
        self._file: BufferedReader | None = None
        # The end of the dashboard does not wait for it.
        Thread(target=self._run, name="timeline", daemon=True).start()

    @property
    def reading(self) -> TimelineReading:
        try:
            read = 0 if self._file is None else self._file.raw.tell()
        except (OSError, ValueError):  # closed, or about to be: it is through
            read = self._size
        return TimelineReading(self._path, self._size, min(read, self._size))

    def _run(self) -> None:
        try:
            self.future.set_result(self._seen())
        except BaseException as error:  # whatever it is, no caller may wait forever
            self.future.set_exception(error)

    def _seen(self) -> TimelineSeen:
        try:
            with self._path.open("rb") as self._file:
                reader = timeline_reader(str(self._path), self._file)
                found = tensors(reader)
        except OSError as error:
            raise UnreadableError(f"{self._path}: cannot be read: {error.strerror}") from None
        return TimelineSeen(
            self._path,
            self._size,
            reader.start_us,
            found,
            reader.unreadable + reader.unmatched,
            reader.unfinished,
        )


class _Timelines:
    """Timelines that were read, or are being read, by their paths."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._works: OrderedDict[Path, _Work] = OrderedDict()

    def of(self, path: Path, again: bool, awaited_bytes: int) -> TimelineSeen | TimelineReading:
        try:
            now = path.stat()
        except OSError as error:
            raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None
        with self._lock:
            work = self._works.get(path)
            # One that grows is not begun anew before it was read.
            changed = (
                work is not None and again and work.future.done() and work.state != _state(now)
            )
            if work is None or changed:
                work = self._works[path] = _Work(path, now)
            self._works.move_to_end(path)
            while len(self._works) > _MOST_KEPT:
                self._works.popitem(last=False)
        waits = now.st_size <= awaited_bytes and path.suffix == ".json"
        return work.future.result() if waits or work.future.done() else work.reading


_TIMELINES = _Timelines()


def _state(state: os.stat_result) -> tuple[int, int]:
    """What is another one once a file has changed."""
    return state.st_size, state.st_mtime_ns


def _newest(run: Run, suffixes: tuple[str, ...], known: Callable[[bytes], bool]) -> Path | None:
    """The newest file of a kind, from the logs' own folders upwards to the one that was opened."""
    for folders in _levels(run):
        files = sorted(_files(folders, suffixes), reverse=True)
        for _, path in files[:_MOST_HEADS]:
            if known(_head(path)):
                return path
    return None


def _levels(run: Run) -> Iterator[set[Path]]:
    root = folder_of(run)
    if root is None:
        return
    root = root.resolve()
    # What logs are called comes from outside.
    inside = (_resolved(root / log.path).parent for log in run.logs)
    level = set(islice((one for one in inside if one.is_relative_to(root)), _MOST_FOLDERS))
    while level:
        yield level
        level = {one.parent for one in level if one != root}


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return Path("/")


def _files(folders: Iterable[Path], suffixes: tuple[str, ...]) -> Iterator[tuple[int, Path]]:
    """Files with these endings, with the times of their last changes."""
    for folder in folders:
        for entry in _entries(folder):
            own = entry.name.lower().startswith(_OWN_FOLDERS)
            if own and entry.is_dir():
                for below in _entries(Path(entry.path)):
                    yield from _file(below, suffixes)
            yield from _file(entry, suffixes)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, _MOST_ENTRIES))
    except (OSError, ValueError):
        return []


def _file(entry: os.DirEntry[str], suffixes: tuple[str, ...]) -> Iterator[tuple[int, Path]]:
    try:
        # Nothing else: opening a pipe would wait for ever.
        if entry.name.endswith(suffixes) and entry.is_file():
            yield entry.stat().st_mtime_ns, Path(entry.path)
    except OSError:
        return


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            if is_packed(head):
                file.seek(0)
                head = unpacking(str(path), file, head).read(_HEAD_BYTES)
            return head
    except OSError:
        return b""
