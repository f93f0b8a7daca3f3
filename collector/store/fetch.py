"""Copy remote files in parallel, fetching only new bytes.

    STORE/.fetched/<place>/index.json   the state of each copy, written when its bytes are on disk
                           files/       the copies; their names are hashes, because names of a source
                                        are untrusted

Logs only grow: if the copy is still a prefix of the file, only the rest is fetched. Copies of files
that were deleted at the source stay.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

from stallscope.errors import (
    NotFoundError,
    StallscopeError,
    UnreadableError,
    UnwritableError,
    causes,
)

from ..sources.source import Source, SourceFile, bytes_of, is_denial, reason
from .layout import written_whole

_AT_ONCE = 8
_BLOCK = 8 << 20
# The number of bytes at a copy's end to compare with the source before appending to it.
_OVERLAP = 64 << 10
_ATTEMPTS = 4
_LONGEST_PAUSE_SECONDS = 20.0
# Errors that another attempt cannot fix.
_FINAL = (FileNotFoundError, NotADirectoryError, NotImplementedError)
# Such errors of optional libraries, by name.
_FINAL_NAMES = ("HostKeyNotVerifiable",)

#: Called with the number of bytes fetched, and first with the number of bytes to fetch.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Copy:
    """The local copy of a file."""

    size: int
    version: str
    file: str


class FetchedSource(Source):
    """The local copies of a source, with the names that the files have at the source."""

    local = True

    def __init__(
        self, where: str, folder: Path, copies: dict[str, Copy], unreadable: Sequence[SourceFile]
    ) -> None:
        self.where = where
        self._folder = folder
        self._copies = copies
        self._unreadable = unreadable

    def files(self) -> list[SourceFile]:
        copied = [
            SourceFile(
                name,
                f"{self.where.rstrip('/')}/{name}",
                copy.size,
                copy.version,
                partial(bytes_of, self._folder / copy.file, copy.size),
            )
            for name, copy in self._copies.items()
        ]
        return sorted([*copied, *self._unreadable], key=lambda file: file.name)


def fetch(
    source: Source, store: Path, progress: Progress = lambda _new, _total: None
) -> FetchedSource:
    """Update the copies of a source.

    Files that were removed, or that permissions refuse, become entries with a problem; copies stay.

    Raises:
        NotFoundError, UnreadableError: if the source cannot be read; existing copies stay.
        UnwritableError: if the store cannot be written.
    """
    folder = copies_folder(source, store)
    with _locked(folder):
        index = _Index(folder, source.where)
        listed = source.files()
        unreadable = [file for file in listed if file.problem]
        files = [file for file in listed if not file.problem]
        outdated = [file for file in files if not index.is_current(file)]
        progress(0, sum(index.missing_bytes(file) for file in outdated))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            started = [pool.submit(_try_to_update, file, index, progress) for file in outdated]
            try:
                for update in as_completed(started):
                    unreadable += update.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                # Keep complete copies even if another file failed.
                index.write()
        return FetchedSource(source.where, folder, dict(index.copies), unreadable)


def copies_folder(source: Source, store: Path) -> Path:
    """Return the folder of a source's copies."""
    return store / ".fetched" / hashlib.sha256(source.where.encode()).hexdigest()[:16]


class _Index:
    """The index of a source's copies; ``record`` is thread-safe."""

    def __init__(self, folder: Path, where: str) -> None:
        self.folder = folder
        self._where = where
        self._path = folder / "index.json"
        self._lock = threading.Lock()
        self.copies: dict[str, Copy] = {}
        if self._path.exists():
            self.copies = self._read()

    def _read(self) -> dict[str, Copy]:
        try:
            content: dict[str, Any] = json.loads(self._path.read_text())
            copies = {name: Copy(**copy) for name, copy in content["files"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        # Ignore copies that were truncated or removed.
        return {name: copy for name, copy in copies.items() if self._holds(copy)}

    def _holds(self, copy: Copy) -> bool:
        path = self.folder / copy.file
        return path.is_file() and path.stat().st_size >= copy.size

    def is_current(self, file: SourceFile) -> bool:
        copy = self.copies.get(file.name)
        return copy is not None and (copy.size, copy.version) == (file.size, file.version)

    def missing_bytes(self, file: SourceFile) -> int:
        """Return the number of bytes of a file to fetch."""
        copy = self.copies.get(file.name)
        copied = 0 if copy is None or copy.size >= file.size else copy.size
        return file.size - copied

    def name_for(self, file: SourceFile) -> str:
        return f"files/{hashlib.sha256(file.name.encode()).hexdigest()[:32]}"

    def record(self, name: str, copy: Copy) -> None:
        with self._lock:
            self.copies[name] = copy

    def write(self) -> None:
        content = {
            "where": self._where,
            "files": {name: asdict(copy) for name, copy in sorted(self.copies.items())},
        }
        write_json(self._path, content)


def _try_to_update(file: SourceFile, index: _Index, progress: Progress) -> list[SourceFile]:
    """Update the copy of one file; return an entry with the problem if only this file has one."""
    try:
        _update_copy(file, index, progress)
    except (NotFoundError, UnreadableError) as error:
        if isinstance(error, UnreadableError) and not is_denial(error):
            raise
        problem = str(error).removeprefix(f"{file.where}: ").removeprefix("cannot be read: ")
        return [SourceFile.unreadable(file.name, file.where, problem)]
    return []


def _update_copy(file: SourceFile, index: _Index, progress: Progress) -> None:
    """Update the copy of one file."""
    local = index.folder / index.name_for(file)
    before = index.copies.get(file.name)
    start = before.size if before is not None and _is_prefix(local, before, file) else 0
    if before is not None and start == file.size and local.is_file():
        # Only the file's version has changed.
        index.record(file.name, Copy(file.size, file.version, index.name_for(file)))
        return
    # A new copy must not damage the old one before it is complete.
    target = local if start else local.with_suffix(".new")
    with writing(local):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("r+b" if start else "wb") as out:
            # Bytes after the indexed size are left from an interrupted fetch.
            out.truncate(start)
            out.seek(start)
            size = _append(file, start, out.write, progress)
            out.flush()
            os.fsync(out.fileno())
        if not start:
            target.replace(local)
    index.record(file.name, Copy(size, file.version, index.name_for(file)))


def _append(
    file: SourceFile, start: int, write: Callable[[bytes], object], progress: Progress
) -> int:
    """Fetch a file from a position to its listed size; return the end position."""
    at = start
    while at < file.size:
        block = _read(file, at, min(at + _BLOCK, file.size))
        if not block:
            raise UnreadableError(
                f"{file.where}: the file became shorter while it was read; collect it again"
            )
        write(block)
        at += len(block)
        progress(len(block), 0)
    return at


def _is_prefix(local: Path, copy: Copy, file: SourceFile) -> bool:
    """Whether a copy is a prefix of the file, as far as its last bytes show."""
    if not 0 < copy.size <= file.size or not local.is_file():
        return False
    start = max(0, copy.size - _OVERLAP)
    with local.open("rb") as stream:
        stream.seek(start)
        end = stream.read(copy.size - start)
    return end == _read(file, start, copy.size)


def _is_transient(error: BaseException) -> bool:
    """Whether another attempt may succeed, because the network failed."""
    final = is_denial(error) or any(
        isinstance(cause, _FINAL) or type(cause).__name__ in _FINAL_NAMES for cause in causes(error)
    )
    return isinstance(error, UnreadableError) and not final


@retry(
    retry=retry_if_exception(_is_transient),
    stop=stop_after_attempt(_ATTEMPTS),
    wait=wait_random_exponential(max=_LONGEST_PAUSE_SECONDS),
    reraise=True,
)
def _read(file: SourceFile, start: int, end: int) -> bytes:
    return file.read(start, end)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the copies of a place; other collectors wait."""
    # Most commands write nothing.
    from filelock import FileLock

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        yield


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file atomically.

    Raises:
        UnwritableError: if it cannot be written.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as draft:
            draft.write_text(json.dumps(content, indent=1))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert errors of the file system to ``UnwritableError``.

    Raises:
        UnwritableError: if the disk is full or the folder is not writable.
    """
    try:
        yield
    except StallscopeError:
        raise
    except OSError as error:
        raise UnwritableError(
            f"{path}: cannot be written: {error.strerror or reason(error)}; its old content is "
            "unchanged"
        ) from error
