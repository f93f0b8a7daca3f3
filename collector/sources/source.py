"""Define sources: places with files, the metadata of each file, and local copies of them."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from glob import has_magic
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from stallscope import __version__
from stallscope.errors import NotFoundError, UnreadableError, causes

if TYPE_CHECKING:
    import fsspec

logger = logging.getLogger("stallscope")
# The type of what listing could not enter or follow, unlike fsspec's "file", "directory" and "other".
DENIED = "denied"
# A place that has not answered after this time gets a warning.
_SILENT_SECONDS = 10.0
_SECONDS_BETWEEN_WARNINGS = 60.0
# Until when each place gets no other warning.
_silent_until: dict[str, float] = {}
_announcing = threading.Lock()
#: Reads the bytes of a file from a position to another (None: its end).
ReadRange = Callable[[int, "int | None"], bytes]

#: Writes a whole file to a path.
Download = Callable[[Path], object]


@dataclass(frozen=True)
class SourceFile:
    """A file at a source."""

    #: Relative to the user's place, with ``/`` between folders. Untrusted.
    name: str
    #: For messages, without credentials.
    where: str
    size: int
    #: Changes when the file does: an ETag, or the modification time; empty if unknown.
    version: str
    read_range: ReadRange
    #: When it was last changed, in nanoseconds since 1970; None if unknown.
    modified_ns: int | None = None
    #: Why nothing can be read of it, such as a pipe or a folder without permission; empty otherwise.
    problem: str = ""

    @classmethod
    def unreadable(cls, name: str, where: str, problem: str) -> SourceFile:
        """Return an entry for something that is never opened: reading it reports the problem."""
        return cls(name, where, 0, "", _nothing, problem=problem)

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Read bytes of the file; by default all.

        Raises:
            NotFoundError: if the file was removed.
            UnreadableError: if it cannot be read.
        """
        if self.problem:
            raise UnreadableError(f"{self.where}: cannot be read: {self.problem}")
        try:
            return bytes(self.read_range(start, end))
        except (NotFoundError, UnreadableError):
            raise
        except FileNotFoundError as error:
            raise NotFoundError(f"{self.where}: the file was removed") from error
        except Exception as error:
            raise UnreadableError(f"{self.where}: cannot be read: {reason(error)}") from error


def _nothing(_start: int, _end: int | None) -> bytes:
    return b""


# The errors of clients with classes of their own, and where the others have the server's status.
_DENIALS = ("SFTPPermissionDenied", "PermissionDenied")
_STATUSES = ("status", "status_code", "code")
#: Deeper than any launcher's folders, and a bound for circular links.
DEEPEST = 12
# Folders listed in parallel; there may be one per rank.
_AT_ONCE = 8
# Files that the recorder writes next to its logs, READMEs, programs, settings and documents.
_COMPANION_FILE = re.compile(
    r"run(-\d+)?\.json|README(\.\w+)?|.+\.upload\.log|.+\.stacks\.txt|\..+\.unfinished"
    r"|.+\.(py|sh|ipynb|toml|ya?ml|md|html|pdf|png|svg)"
)
# Folders that executors write to during a report, named by ``mkdtemp``.
_SCRATCH = re.compile(r"(.*/)?\.stallscope-spark-[a-z0-9_]{8}/")


def is_companion_file(name: str) -> bool:
    """Whether a file of this name accompanies logs and is not a log itself."""
    return (
        _COMPANION_FILE.fullmatch(name.rpartition("/")[2]) is not None
        or _SCRATCH.match(name) is not None
    )


def without_companions(files: Sequence[SourceFile]) -> Sequence[SourceFile]:
    """Return the files that may be logs; a single file is meant, whatever its name."""
    if len(files) == 1:
        return files
    return [file for file in files if not is_companion_file(file.name)]


def bytes_of(path: Path, size: int, start: int, end: int | None) -> bytes:
    """Read a part of the first ``size`` bytes of a local file."""
    with path.open("rb") as file:
        file.seek(start)
        return file.read((size if end is None else min(end, size)) - start)


class Listed(Protocol):
    """A file or folder in a listing."""

    @property
    def path(self) -> str: ...

    @property
    def is_dir(self) -> bool: ...


FileOrFolder = TypeVar("FileOrFolder", bound=Listed)


def files_below(
    list_folder: Callable[[str], Iterable[FileOrFolder]], root: str
) -> list[FileOrFolder]:
    """List all files below a folder, whose folders are listed in parallel."""
    files: list[FileOrFolder] = []
    folders = [root]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in range(DEEPEST):
            listed = list(chain.from_iterable(pool.map(list_folder, folders)))
            files += [entry for entry in listed if not entry.is_dir]
            folders = [entry.path for entry in listed if entry.is_dir]
    return files


@contextmanager
def announced_wait(where: str, doing: str = "waiting for an answer") -> Iterator[None]:
    """Warn if the block, which a place keeps waiting, takes long: silence looks like a hang.

    Args:
        where: the place; for each, there is at most one warning a minute.
        doing: what takes long.
    """
    sentence = f"stallscope: {where}: still {doing} after {_SILENT_SECONDS:g} s"
    timer = threading.Timer(_SILENT_SECONDS, _announce, (where, sentence))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _announce(where: str, sentence: str) -> None:
    now = time.monotonic()
    with _announcing:
        # Several files are read at once, and a client tries again.
        if now < _silent_until.get(where, 0.0):
            return
        _silent_until[where] = now + _SECONDS_BETWEEN_WARNINGS
    logger.warning("%s", sentence)


class LocalDisk:
    """Lists and reads local files as fsspec's file systems do.

    To import fsspec takes a tenth of the time of a small report.
    """

    @staticmethod
    def path_of(text: str) -> str | None:
        """Return the absolute path that a user's text names; None for what only fsspec opens."""
        if os.sep != "/" or urlsplit(text).scheme or text.startswith("~") or "::" in text:
            return None
        return None if has_magic(text) else str(Path.cwd() / text)

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def info(self, path: str) -> dict[str, Any]:
        return _local_info(path, Path(path).stat())

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        entries = []
        with os.scandir(path) as listing:
            for entry in listing:
                with suppress(FileNotFoundError):
                    entries.append(_local_info(entry.path, entry.stat(follow_symlinks=False)))
        return entries

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        with Path(path).open("rb") as file:
            file.seek(start)
            return file.read(-1 if end is None else end - start)

    def invalidate_cache(self) -> None:
        """Do nothing: each listing is new."""


def _local_info(path: str, metadata: os.stat_result) -> dict[str, Any]:
    mode = metadata.st_mode
    kind = "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
    size, changed = metadata.st_size, metadata.st_mtime
    return {"name": path, "type": kind, "size": size, "mode": mode, "mtime": changed}


def walk(file_system: fsspec.AbstractFileSystem, folder: str) -> dict[str, dict[str, Any]]:
    """List the files below a folder, and the folders that permissions do not let us list."""
    entries: dict[str, dict[str, Any]] = {}
    folders = [folder]
    for _ in range(DEEPEST):
        below = []
        for path in folders:
            try:
                listed = file_system.ls(path, detail=True)
            except FileNotFoundError:
                continue
            except Exception as error:
                if not is_denial(error):
                    raise
                entries[path] = _denied(path, error, is_folder=True)
                continue
            for info in listed:
                if info["type"] == "directory":
                    below.append(info["name"])
                else:
                    entries[info["name"]] = info
        folders = below
    return entries


def resolve_link(
    file_system: fsspec.AbstractFileSystem, path: str, info: dict[str, Any]
) -> dict[str, Any]:
    """Follow a link; pipes, devices and broken links are neither file nor folder."""
    if info["type"] in ("file", "directory", DENIED):
        return info
    try:
        return dict(file_system.info(path))
    except Exception as error:
        if is_denial(error):
            return _denied(path, error, is_folder=False)
        # Over ssh, circular links raise a general failure.
        if isinstance(error, OSError) or type(error).__name__ == "SFTPFailure":
            return info
        raise


def is_denial(error: BaseException | None) -> bool:
    """Whether permissions refuse a folder or file, by the error or its cause.

    The rest of the place can still be read.
    """
    for cause in causes(error):
        if isinstance(cause, PermissionError) or type(cause).__name__ in _DENIALS:
            return True
        places = (cause, getattr(cause, "response", None))
        if any(getattr(place, name, 0) in (401, 403) for place in places for name in _STATUSES):
            return True
    return False


def _denied(path: str, error: Exception, *, is_folder: bool) -> dict[str, Any]:
    return {"name": path, "type": DENIED, "error": error, "is_folder": is_folder}


def special_kind(info: Mapping[str, Any]) -> str:
    """Name what is neither a file nor a folder, by its mode if the file system tells it."""
    mode = info.get("mode") or 0
    for is_kind, kind in (
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    ):
        if is_kind(mode):
            return f"{kind}, not a file"
    return "not a file"


def fingerprint(files: Sequence[SourceFile], read_as: str | None) -> str:
    """Return a fingerprint of the files and of the version of Stallscope, which may read more."""
    content = [__version__, read_as, [(file.name, file.size, file.version) for file in files]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


class Source(ABC):
    """A place that a user named. A new kind of place is one file with one subclass, listed in
    ``registry.py``.
    """

    #: The user's text without credentials, for messages, manifests and the catalogue.
    where: str
    #: Whether reading the place is as cheap as reading a copy; then no copy is made.
    local: bool = False
    #: Whether other machines can open its files.
    portable: bool = False

    @abstractmethod
    def files(self) -> list[SourceFile]:
        """List all files at the place, by name.

        Raises:
            NotFoundError: if there is nothing.
            UnreadableError: if the place cannot be reached.
        """


class CombinedSource(Source):
    """All files of several places, such as the hosts of a job without a shared disk.

    A file's name starts with the number of its place.
    """

    def __init__(self, places: Sequence[Source]) -> None:
        self._places = tuple(places)
        rest = len(places) - 1
        self.where = places[0].where + (f" and {rest} more" if rest else "")
        self.local = all(place.local for place in places)

    def files(self) -> list[SourceFile]:
        return [
            replace(file, name=f"{number}/{file.name}")
            for number, place in enumerate(self._places)
            for file in place.files()
        ]


def reason(error: BaseException) -> str:
    """Return the first line of another library's error, without the file's name, which callers print."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        text = error.strerror or ""
    text = text.strip()
    return text.splitlines()[0] if text else type(error).__name__


def secrets_of(url: str) -> list[str]:
    """Return the possible secrets of a URL: the password, quoted and unquoted, and the query."""
    parts = urlsplit(url)
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    return [secret for secret in (password, unquote(password), parts.query) if secret]


def without_credentials(url: str) -> str:
    """Remove password, query and fragment of a URL, which may be secrets; the user name stays."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, user.partition(":")[0] + at + host, parts.path, "", ""))


# -- Copy remote files to a local disk while they are read, for places without range requests -----


class LocalCopies:
    """The local copies of one place's files. They are removed once read to the end, or with the place.

    Args:
        kind: the kind of place, used in the folder's name.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def has(self, path: str) -> bool:
        """Whether a file has a copy."""
        return self._local(path).exists()

    def forget(self, path: str) -> None:
        """Remove the copy of a file, which may have changed."""
        self._local(path).unlink(missing_ok=True)

    def size(self, path: str, download: Download) -> int:
        """Copy a file; return its size."""
        return self._download(path, download).stat().st_size

    def read(self, path: str, download: Download, start: int, end: int | None) -> bytes:
        """Read the bytes of a file from a position to another (None: its end).

        Args:
            path: the file's path at the place.
            download: downloads the file if it has no copy.
        """
        local = self._download(path, download)
        with local.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(start)
            data = file.read(-1 if end is None else end - start)
        if end is None or end >= size:
            # A copy that was read to the end is no longer needed.
            local.unlink(missing_ok=True)
        return data

    def _download(self, path: str, download: Download) -> Path:
        local = self._local(path)
        if not local.exists():
            descriptor, name = tempfile.mkstemp(".part", dir=local.parent)
            os.close(descriptor)
            unfinished = Path(name)
            try:
                download(unfinished)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
            unfinished.replace(local)
        return local

    def _local(self, path: str) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix=f"stallscope-{self._kind}-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            return self._folder / hashlib.sha256(path.encode()).hexdigest()
