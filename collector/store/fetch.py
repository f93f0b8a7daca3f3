"""Copies of what is far away: only new bytes are fetched, in parallel, and nothing half is ever used.

    STORE/.fetched/<place>/index.json   what is here of each file, written when its bytes are on disk
                           files/       the copies, under names of their own: those of a source may hold
                                        anything, and never become paths

Logs only grow, so of a file that has grown only its new end is fetched, after a look at whether what is
here is still its beginning. What has gone at the source stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

from stallscope.errors import StallscopeError, UnreadableError, UnwritableError

from ..sources.base import Source, SourceFile, bytes_of, reason
from .layout import written_whole

_AT_ONCE = 8
_BLOCK = 8 << 20
# So much of a copy's end is compared with the source before more is added to it.
_OVERLAP = 64 << 10
_ATTEMPTS = 4
_LONGEST_PAUSE_SECONDS = 20.0
# What another attempt cannot mend.
_FINAL = (PermissionError, FileNotFoundError, NotADirectoryError, NotImplementedError)
# The same from a library that is there with an extra only, by name.
_FINAL_NAMES = ("SFTPPermissionDenied", "HostKeyNotVerifiable", "PermissionDenied")

#: Called with the bytes that were fetched, and, first, with the bytes that there are to fetch.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Copy:
    """What is here of a file."""

    size: int
    version: str
    file: str


class Fetched(Source):
    """A source through its copies: as local files, under the names that they have at the source."""

    local = True

    def __init__(self, where: str, folder: Path, copies: dict[str, Copy]) -> None:
        self.where = where
        self._folder = folder
        self._copies = copies

    def files(self) -> list[SourceFile]:
        return [
            SourceFile(
                name,
                f"{self.where.rstrip('/')}/{name}",
                copy.size,
                copy.version,
                partial(bytes_of, self._folder / copy.file, copy.size),
            )
            for name, copy in sorted(self._copies.items())
        ]


def fetch(source: Source, store: Path, progress: Progress = lambda _new, _total: None) -> Fetched:
    """Bring the copies of a source up to date.

    Raises:
        NotFoundError, UnreadableError: if the source cannot be read; what was fetched before stays.
        UnwritableError: if the store cannot take it.
    """
    folder = place_of(source, store)
    with _locked(folder):
        index = _Index(folder, source.where)
        files = source.files()
        lacking = [file for file in files if not index.has(file)]
        progress(0, sum(index.lacks(file) for file in lacking))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            started = [pool.submit(_copied, file, index, progress) for file in lacking]
            try:
                for one in as_completed(started):
                    one.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                # What is whole is kept, also when another file failed.
                index.write()
        return Fetched(source.where, folder, dict(index.copies))


def place_of(source: Source, store: Path) -> Path:
    """The folder of a source's copies."""
    return store / ".fetched" / hashlib.sha256(source.where.encode()).hexdigest()[:16]


class _Index:
    """What is here of which file; safe to be told by several threads."""

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
        # A copy that was cut or removed does not count.
        return {name: copy for name, copy in copies.items() if self._holds(copy)}

    def _holds(self, copy: Copy) -> bool:
        path = self.folder / copy.file
        return path.is_file() and path.stat().st_size >= copy.size

    def has(self, file: SourceFile) -> bool:
        copy = self.copies.get(file.name)
        if copy is None or copy.size != file.size:
            return False
        return copy.version == file.version

    def lacks(self, file: SourceFile) -> int:
        """How many bytes of a file are not here."""
        copy = self.copies.get(file.name)
        here = 0 if copy is None or copy.size >= file.size else copy.size
        return file.size - here

    def name_for(self, file: SourceFile) -> str:
        return f"files/{hashlib.sha256(file.name.encode()).hexdigest()[:32]}"

    def told(self, name: str, copy: Copy) -> None:
        with self._lock:
            self.copies[name] = copy

    def write(self) -> None:
        content = {
            "where": self._where,
            "files": {name: asdict(copy) for name, copy in sorted(self.copies.items())},
        }
        write_json(self._path, content)


def _copied(file: SourceFile, index: _Index, progress: Progress) -> None:
    """Bring one file's copy up to date."""
    local = index.folder / index.name_for(file)
    before = index.copies.get(file.name)
    start = before.size if before is not None and _is_beginning(local, before, file) else 0
    if before is not None and start == file.size and local.is_file():
        # Touched and not changed.
        index.told(file.name, Copy(file.size, file.version, index.name_for(file)))
        return
    # What is begun anew must not take the old copy with it.
    target = local if start else local.with_suffix(".new")
    with writing(local):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("r+b" if start else "wb") as out:
            # More than the index knows of is what an interrupted fetch has left.
            out.truncate(start)
            out.seek(start)
            size = _append(file, start, out.write, progress)
            out.flush()
            os.fsync(out.fileno())
        if not start:
            target.replace(local)
    index.told(file.name, Copy(size, file.version, index.name_for(file)))


def _append(
    file: SourceFile, start: int, write: Callable[[bytes], object], progress: Progress
) -> int:
    """Fetch a file from a position to the size that it had when it was listed; where that ended."""
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


def _is_beginning(local: Path, copy: Copy, file: SourceFile) -> bool:
    """Whether a copy ends as the source's file does at that place, so that only more is needed."""
    if not 0 < copy.size <= file.size or not local.is_file():
        return False
    start = max(0, copy.size - _OVERLAP)
    with local.open("rb") as own:
        own.seek(start)
        end = own.read(copy.size - start)
    return end == _read(file, start, copy.size)


def _may_pass(error: BaseException) -> bool:
    """Whether it may go better in a moment: the network, and not what was asked for."""
    cause = error.__cause__
    final = isinstance(cause, _FINAL) or type(cause).__name__ in _FINAL_NAMES
    return isinstance(error, UnreadableError) and not final


@retry(
    retry=retry_if_exception(_may_pass),
    stop=stop_after_attempt(_ATTEMPTS),
    wait=wait_random_exponential(max=_LONGEST_PAUSE_SECONDS),
    reraise=True,
)
def _read(file: SourceFile, start: int, end: int) -> bytes:
    return file.read(start, end)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One collector at a time works on the copies of a place; others wait."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        yield


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file as a whole: readers see the old one or the new one.

    Raises:
        UnwritableError: if the disk does not take it.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as draft:
            draft.write_text(json.dumps(content, indent=1))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what a disk says into a sentence.

    Raises:
        UnwritableError: if the disk is full, or nothing may be written there.
    """
    try:
        yield
    except StallscopeError:
        raise
    except OSError as error:
        raise UnwritableError(
            f"{path}: cannot be written: {error.strerror or reason(error)}; what was there before "
            "is as it was"
        ) from error
