"""Find and read the files that Horovod wrote next to a run's logs: Timeline and autotune log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from threading import Lock, Thread

from stallscope.analysis.network.tensors import Tensors, tensors
from stallscope.errors import UnreadableError
from stallscope.parsers.files.unpacking import is_packed, unpacking
from stallscope.parsers.formats.autotune import AutotuneLog, is_autotune_log, read_autotune
from stallscope.parsers.formats.horovod_timeline import is_timeline, timeline_reader
from stallscope.run import Run

from .run_folder import local_folder
from .store.cache import Cache

# Larger timelines, and compressed ones, take seconds: the page does not wait for them.
_BLOCKING_BYTES = 64 << 20
_HEAD_BYTES = 4096
_TIMELINE_SUFFIXES = (".json", ".json.gz", ".json.bz2", ".json.xz", ".json.zst")
_AUTOTUNE_SUFFIXES = (".csv", ".log", ".txt")
# Subfolders with these prefixes are searched, too.
_SUBFOLDERS = ("timeline", "autotune")
# Files to check the start of, folders per run, and entries per folder.
_MOST_HEADS, _MOST_FOLDERS, _MOST_ENTRIES = 200, 64, 4096

_MOST_FILES = 8
_AUTOTUNE_LOGS = Cache(_MOST_FILES)
#: The loaders of timelines, by path.
_TIMELINES = Cache(_MOST_FILES)
_TIMELINES_LOCK = Lock()


@dataclass(frozen=True)
class LoadedTimeline:
    """A timeline that was read to its end."""

    path: Path
    #: Bytes of the file.
    size: int
    #: Wall clock, microseconds since 1970, at the timeline's time 0; None before Horovod 0.20.1.
    start_us: int | None
    tensors: Tensors
    #: Events that are damaged or do not match, and activities without an end.
    damaged: int
    unfinished: int


@dataclass(frozen=True)
class LoadingTimeline:
    """A timeline that is being read."""

    path: Path
    #: Bytes of the file, and bytes read so far.
    size: int
    read: int


@dataclass(frozen=True)
class LoadedAutotune:
    """An autotune log that was read to its end."""

    path: Path
    log: AutotuneLog


def companion_timeline(
    run: Run, *, reload: bool = True, blocking_bytes: int = _BLOCKING_BYTES
) -> LoadedTimeline | LoadingTimeline | None:
    """Read the newest Horovod Timeline next to a run's logs; None without one.

    A thread reads a large one, once for all callers; until it is done, they get its progress.

    Args:
        reload: whether to read a timeline again that has changed.
        blocking_bytes: the size up to which the caller waits.

    Raises:
        UnreadableError: if the timeline cannot be read.
    """
    path = _newest(run, _TIMELINE_SUFFIXES, is_timeline)
    if path is None:
        return None
    stat = _stat(path)
    loader = _timeline_loader(path, stat, reload=reload)
    blocking = stat.st_size <= blocking_bytes and path.suffix == ".json"
    return loader.future.result() if blocking or loader.future.done() else loader.progress


def has_companions(run: Run) -> bool:
    """Whether a Horovod Timeline or an autotune log is next to a run's logs."""
    kinds = ((_TIMELINE_SUFFIXES, is_timeline), (_AUTOTUNE_SUFFIXES, is_autotune_log))
    return any(_newest(run, suffixes, matches) is not None for suffixes, matches in kinds)


def companion_autotune(run: Run) -> LoadedAutotune | None:
    """Read the newest autotune log next to a run's logs; None without one.

    Raises:
        StallscopeError: if the log cannot be read.
    """
    path = _newest(run, _AUTOTUNE_SUFFIXES, is_autotune_log)
    if path is None:
        return None
    key = (path, *_version(_stat(path)))
    return _AUTOTUNE_LOGS.get(key, lambda: LoadedAutotune(path, read_autotune(path)))


class _TimelineLoader:
    """A thread that reads one timeline."""

    def __init__(self, path: Path, stat: os.stat_result) -> None:
        self.version = _version(stat)
        self.future: Future[LoadedTimeline] = Future()
        self._path = path
        self._size = stat.st_size
        self._file: BufferedReader | None = None
        # A daemon: the dashboard can stop without waiting for it.
        Thread(target=self._run, name="timeline", daemon=True).start()

    @property
    def progress(self) -> LoadingTimeline:
        try:
            read = 0 if self._file is None else self._file.raw.tell()
        except (OSError, ValueError):  # closed, so it was read to its end
            read = self._size
        return LoadingTimeline(self._path, self._size, min(read, self._size))

    def _run(self) -> None:
        try:
            self.future.set_result(self._load())
        except BaseException as error:  # any error: callers must not wait forever
            self.future.set_exception(error)

    def _load(self) -> LoadedTimeline:
        try:
            with self._path.open("rb") as self._file:
                reader = timeline_reader(str(self._path), self._file)
                timeline_tensors = tensors(reader)
        except OSError as error:
            raise UnreadableError(f"{self._path}: cannot be read: {error.strerror}") from None
        return LoadedTimeline(
            self._path,
            self._size,
            reader.start_us,
            timeline_tensors,
            reader.unreadable + reader.unmatched,
            reader.unfinished,
        )


def _timeline_loader(path: Path, stat: os.stat_result, *, reload: bool) -> _TimelineLoader:
    """Return the loader of a timeline; a new one if the timeline has changed and may be reloaded."""
    with _TIMELINES_LOCK:
        loader = _TIMELINES.get(path, lambda: _TimelineLoader(path, stat))
        # A growing timeline is read to its end before it is read again.
        if reload and loader.future.done() and loader.version != _version(stat):
            _TIMELINES.discard(lambda key: key == path)
            loader = _TIMELINES.get(path, lambda: _TimelineLoader(path, stat))
        return loader


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None


def _version(stat: os.stat_result) -> tuple[int, int]:
    """Return values that differ once a file has changed."""
    return stat.st_size, stat.st_mtime_ns


def _newest(run: Run, suffixes: tuple[str, ...], matches: Callable[[bytes], bool]) -> Path | None:
    """Find the newest file of a kind, from the folders of the logs up to the one that was opened."""
    for folders in _levels(run):
        files = sorted(_files(folders, suffixes), reverse=True)
        for _, path in files[:_MOST_HEADS]:
            if matches(_head(path)):
                return path
    return None


def _levels(run: Run) -> Iterator[set[Path]]:
    root = local_folder(run)
    if root is None:
        return
    root = root.resolve()
    # Names of logs are untrusted: they may point outside of the root.
    folders = (_resolved(root / log.path).parent for log in run.logs)
    level = set(
        islice((folder for folder in folders if folder.is_relative_to(root)), _MOST_FOLDERS)
    )
    while level:
        yield level
        level = {folder.parent for folder in level if folder != root}


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return Path("/")


def _files(folders: Iterable[Path], suffixes: tuple[str, ...]) -> Iterator[tuple[int, Path]]:
    """Find files with these suffixes; return the times of their last changes, too."""
    for folder in folders:
        for entry in _entries(folder):
            if entry.name.lower().startswith(_SUBFOLDERS) and entry.is_dir():
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
        # Regular files only: opening a pipe would wait forever.
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
