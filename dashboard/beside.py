"""What Horovod wrote beside a run's logs: its Timeline and its autotuner's log."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from stallscope.analysis.tensors import Tensors, tensors
from stallscope.errors import UnreadableError
from stallscope.parsers.autotune import AutotuneLog, is_autotune_log, read_autotune
from stallscope.parsers.horovod_timeline import TimelineReader, is_timeline
from stallscope.run import Run

from .store.cache import Cache

#: Of a longer timeline only the beginning is read: names and ticks are there.
MOST_BYTES = 64 << 20
_HEAD_BYTES = 4096
_EVENT = b'{"ph": "'
# Files whose heads are looked at, folders of one run, and entries of one folder.
_MOST_HEADS, _MOST_FOLDERS, _MOST_ENTRIES = 200, 64, 4096
_OWN_FOLDERS = ("timeline", "autotune")
_AUTOTUNE_SUFFIXES = (".csv", ".log", ".txt")

_READ = Cache(8)

T = TypeVar("T")


@dataclass(frozen=True)
class TimelineSeen:
    """A timeline, or its beginning."""

    path: Path
    #: Bytes of the file, and those of them that were read.
    size: int
    read: int
    #: Wall clock, microseconds since 1970, at its time 0; None before Horovod 0.20.1.
    start_us: int | None
    tensors: Tensors
    #: Events that could not be read or do not fit together, and activities without an end.
    damaged: int
    unfinished: int


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


def timeline_beside(run: Run, most_bytes: int = MOST_BYTES) -> TimelineSeen | None:
    """The newest Horovod Timeline beside a run's logs; None without one.

    Raises:
        UnreadableError: if there is one that cannot be read.
    """
    path = _newest(run, (".json",), is_timeline)
    if path is None:
        return None
    return _kept(path, lambda: _timeline(path, most_bytes), most_bytes)


def autotune_beside(run: Run) -> AutotuneSeen | None:
    """The newest autotune log beside a run's logs; None without one.

    Raises:
        StallscopeError: if there is one that cannot be read.
    """
    path = _newest(run, _AUTOTUNE_SUFFIXES, is_autotune_log)
    return None if path is None else _kept(path, lambda: AutotuneSeen(path, read_autotune(path)))


def _kept(path: Path, make: Callable[[], T], *how: int) -> T:
    try:
        now = path.stat()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None
    return _READ.get((path, now.st_size, now.st_mtime_ns, *how), make)


def _timeline(path: Path, most_bytes: int) -> TimelineSeen:
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes)
            size = max(os.fstat(file.fileno()).st_size, len(data))
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None
    if size > len(data):
        # The event that the limit cuts is not damaged.
        data = data[: max(data.rfind(_EVENT), 0)] or data
    reader = TimelineReader(str(path), io.BytesIO(data))
    found = tensors(reader)
    return TimelineSeen(
        path,
        size,
        len(data) if size > most_bytes else size,
        reader.start_us,
        found,
        reader.unreadable + reader.unmatched,
        reader.unfinished,
    )


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
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""
