"""Read local files and folders, or any that fsspec opens; names may have ``*``, ``?`` and ``[…]``."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from glob import has_magic
from itertools import islice
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stallscope.errors import (
    TIMEOUTS_BY_NAME,
    MissingExtraError,
    NotFoundError,
    StallscopeError,
    UnansweredError,
    UnreadableError,
    UsageError,
    timed_out,
)

from .pieces import join_chunks
from .source import (
    DEEPEST,
    DENIED,
    LocalDisk,
    Source,
    SourceFile,
    announced_wait,
    reason,
    resolve_link,
    secrets_of,
    special_kind,
    walk,
    without_credentials,
)

if TYPE_CHECKING:
    import fsspec

# Metadata that changes with a file, by file system; the first that exists counts.
_VERSIONS = (
    "ETag",
    "etag",
    "e_tag",
    "generation",
    "content_md5",
    "mtime",
    "LastModified",
    "Last-Modified",
    "modified",
    "modificationTime",
)
# The extra with the library for a protocol; for other protocols, fsspec names the library.
_EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "azure"),
    **dict.fromkeys(("ssh", "sftp"), "ssh"),
}
# Protocols to list folder by folder, because fsspec's ``find`` silently skips unreadable folders.
_WALKED = ("", "file", "local", "ssh", "sftp", "hdfs", "webhdfs")
# Protocols without folders, which one request lists.
_FLAT = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
#: Error messages for timeouts, by the names of the clients' exceptions.
TIMEOUTS = dict.fromkeys(TIMEOUTS_BY_NAME, "no data arrived for {seconds} s")
# Servers that did not answer, and until when opening a place there fails without another wait.
_SILENT_UNTIL: dict[str, float] = {}
_ASKED_AGAIN_SECONDS = 30.0
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[\\/]")

# A folder with more entries is not searched further.
_MOST_ENTRIES = 10_000


class Files(Source):
    """A file, all files below a folder, or all files that match a pattern."""

    portable = True
    #: Error messages by the names of exceptions, whose classes need an extra; ``{error}`` is the
    #: exception's message, ``{seconds}`` the timeout.
    error_messages: Mapping[str, str] = MappingProxyType({})
    #: The error message for a server that answers nothing.
    unanswered = "no data arrived for {seconds} s; check the address and the network"
    #: A remote place may be silent for this time; slow transfers may take longer.
    timeout_seconds = 15.0
    #: The number of attempts at a request, unless the user's configuration sets it.
    attempts = 3
    _has_answered = False

    def __init__(self, text: str) -> None:
        self._text = text
        self._protocol = "" if _WINDOWS_DRIVE.match(text) else urlsplit(text).scheme
        self.where = without_credentials(text)
        self.local = "://" not in text or text.startswith(("file://", "local://", "memory://"))

    def __reduce__(self) -> tuple[type[Files], tuple[str]]:
        # Connections, credentials and locks stay in this process.
        return type(self), (self._text,)

    def exists(self) -> bool:
        """Whether a file or folder of this name exists."""
        file_system, path = self._open_to_read()
        return bool(file_system.exists(path))

    def files(self) -> list[SourceFile]:
        self.require_answer()
        try:
            with nullcontext() if self.local else announced_wait(self.where):
                file_system, path = self._open_to_read()
                # Other processes may have written files since.
                file_system.invalidate_cache()
                files = self._list(file_system, path)
        except StallscopeError:
            raise
        except Exception as error:
            raise UnreadableError(
                f"{self.where}: cannot be opened: {self.describe_error(error)}"
            ) from error
        # In a download from MLflow, or in its server's folder, logs are split into chunks.
        return join_chunks(files)

    def _open_to_read(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """Return the file system and the path in it; local ones need no fsspec, unless they match."""
        path = LocalDisk.path_of(self._text)
        return self.open_file_system() if path is None else (LocalDisk(), path)

    def open_file_system(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """Return the file system and the path in it.

        Raises:
            MissingExtraError: if the library for the protocol is not installed.
            UsageError: if the text is invalid.
        """
        try:
            return self._file_system()
        except ImportError as error:
            extra = _EXTRAS.get(self._protocol)
            if extra:
                raise MissingExtraError(extra, f"support for {self._protocol}://") from error
            package = error.name
            message = f"it needs {package}: pip install {package}" if package else reason(error)
            raise UsageError(f"{self.where}: cannot be opened: {message}") from error
        except ValueError as error:
            message = self.describe_error(error)
            raise UsageError(f"{self.where}: cannot be opened: {message}") from error

    def require_answer(self) -> None:
        """Make a first request without retries, because clients retry for minutes while a user waits.

        Raises:
            UnansweredError: if no answer comes within the timeout.
        """
        if self.local or self._has_answered:
            return
        parts = urlsplit(self._text)
        server = f"{parts.scheme}://{parts.netloc}"
        if time.monotonic() < _SILENT_UNTIL.get(server, 0.0):
            raise self._unanswered_error()
        try:
            with announced_wait(self.where):
                self._first_request()
        except Exception as error:
            if timed_out(error):
                _SILENT_UNTIL[server] = time.monotonic() + _ASKED_AGAIN_SECONDS
                raise self._unanswered_error() from error
            if isinstance(error, StallscopeError):
                raise
            # The requests that follow report other errors, and are repeated where that may help.
        self._has_answered = True

    def _first_request(self) -> None:
        """Make a cheap request, once; what it returns does not matter."""
        impatient = copy(self)
        impatient.attempts = 1
        file_system, path = impatient.open_file_system()
        file_system.info(path)

    def _unanswered_error(self) -> UnansweredError:
        message = self.unanswered.replace("{seconds}", f"{self.timeout_seconds:g}")
        return UnansweredError(f"{self.where}: cannot be opened: {message}")

    def conditional_options(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return options of ``pipe_file`` that make it fail if another process has changed the object.

        The options are empty if the place or its client does not support conditions.

        Args:
            info: the metadata of the object to replace; None if there was none.
        """
        return {}

    def _file_system(self) -> tuple[fsspec.AbstractFileSystem, str]:
        kind = self._kind()
        if kind is None:
            from fsspec.core import url_to_fs

            file_system, path = url_to_fs(self._text, **self._options())
            return file_system, path
        options = {**kind._get_kwargs_from_urls(self._text), **self._options()}
        return kind(**options), kind._strip_protocol(self._text)

    def _kind(self) -> type[fsspec.AbstractFileSystem] | None:
        """Return the class of file system; None for fsspec's choice."""
        return None

    def _client_timeout(self) -> Any:
        """Return the timeout for clients that use aiohttp."""
        from aiohttp import ClientTimeout

        seconds = self.timeout_seconds
        return ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds)

    def _options(self) -> dict[str, Any]:
        """Return the options for opening the file system."""
        # By default, fsspec caches listings of object stores for the life of the process.
        local_protocols = ("", "file", "local", "memory")
        return {} if self._protocol in local_protocols else {"use_listings_cache": False}

    def _list(self, file_system: fsspec.AbstractFileSystem, path: str) -> list[SourceFile]:
        # Do not call isfile(), which returns False if the place cannot be reached.
        try:
            info = file_system.info(path)
        except (FileNotFoundError, NotADirectoryError):
            if has_magic(path):
                return self._glob(file_system, path)
            near = "" if self._protocol else did_you_mean(self.where)
            raise NotFoundError(f"{self.where}: no such file or folder{near}") from None
        if info["type"] == "directory" or self._is_placeholder(file_system, path, info):
            return [*self._files_below(file_system, path, PurePosixPath(path))]
        if info["type"] != "file":
            raise UnreadableError(
                f"{self.where}: this is {special_kind(info)}; write what it carries to a file first"
            )
        return [self._file(file_system, PurePosixPath(path).name, path, info)]

    def _is_placeholder(
        self, file_system: fsspec.AbstractFileSystem, path: str, info: dict[str, Any]
    ) -> bool:
        """Whether an empty file stands for a folder, as some clients show it."""
        if self._protocol not in _FLAT or info.get("size"):
            return False
        return any(child.startswith(path.rstrip("/") + "/") for child in file_system.find(path))

    def _glob(self, file_system: fsspec.AbstractFileSystem, pattern: str) -> list[SourceFile]:
        """List matching files, and files below matching folders; names start after the fixed folders."""
        fixed = PurePosixPath(pattern)
        while has_magic(str(fixed)):
            fixed = fixed.parent
        matches: dict[str, Any] = {}
        # Some clients raise this for a missing bucket.
        with suppress(FileNotFoundError):
            matches = file_system.glob(pattern, detail=True)
        if not matches:
            raise NotFoundError(f"{self.where}: nothing matches")
        files = {}
        for path, listed in matches.items():
            info = resolve_link(file_system, path, listed)
            if info["type"] == "directory":
                below = self._files_below(file_system, path, fixed, may_be_denied=True)
                files.update({file.name: file for file in below})
            else:
                name = str(PurePosixPath(path).relative_to(fixed))
                files.update(
                    {file.name: file for file in self._entry(file_system, name, path, info)}
                )
        return list(files.values())

    def _files_below(
        self,
        file_system: fsspec.AbstractFileSystem,
        folder: str,
        root: PurePosixPath,
        *,
        may_be_denied: bool = False,
    ) -> Iterable[SourceFile]:
        """List the files below a folder; names start after ``root``.

        Args:
            may_be_denied: whether the folder itself may be unreadable, like any folder below it.
        """
        prefix = str(root).rstrip("/") + "/"
        for path, listed in self._list_below(file_system, folder).items():
            if listed["type"] == DENIED and path == folder and not may_be_denied:
                raise listed["error"]
            info = resolve_link(file_system, path, listed)
            yield from self._entry(file_system, path.removeprefix(prefix), path, info)

    def _entry(
        self, file_system: fsspec.AbstractFileSystem, name: str, path: str, info: dict[str, Any]
    ) -> Iterable[SourceFile]:
        """Return a file, or an entry for something that is never opened; nothing for broken links."""
        where = path if self.local else self._where_of(name, path)
        if info["type"] == "file":
            # Consoles of object stores create empty objects that stand for folders.
            if not path.endswith("/"):
                yield self._file(file_system, name, path, info)
        elif info["type"] == DENIED:
            slash = "/" if info["is_folder"] else ""
            yield SourceFile.unreadable(name + slash, where + slash, reason(info["error"]))
        elif info["type"] == "other" and not stat.S_ISLNK(info.get("mode") or 0):
            yield SourceFile.unreadable(name, where, f"this is {special_kind(info)}")

    def _list_below(
        self, file_system: fsspec.AbstractFileSystem, folder: str
    ) -> dict[str, dict[str, Any]]:
        if self._protocol in _FLAT:
            return dict(file_system.find(folder, detail=True))
        if self._protocol in _WALKED:
            return walk(file_system, folder)
        return dict(file_system.find(folder, maxdepth=DEEPEST, detail=True))

    def _file(
        self, file_system: fsspec.AbstractFileSystem, name: str, path: str, info: dict[str, Any]
    ) -> SourceFile:
        where = path if self.local else self._where_of(name, path)
        size = int(info.get("size") or 0)
        read_range = _FileReader(self, path, where, size, file_system)
        version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
        modified = info.get("mtime")
        modified_ns = int(modified * 1e9) if isinstance(modified, float) else None
        return SourceFile(name, where, size, version, read_range, modified_ns)

    def read_bytes(
        self,
        file_system: fsspec.AbstractFileSystem,
        path: str,
        where: str,
        size: int,
        start: int,
        end: int | None,
    ) -> bytes:
        """Read bytes of a file that was listed with this size.

        Args:
            where: the file's name in messages.

        Raises:
            FileNotFoundError, UnreadableError: if the bytes cannot be read.
        """
        if not size and self._protocol in _FLAT:
            # It may stand for a folder, which clients that strip the slash do not find.
            return b""
        try:
            return self._bytes(file_system, path, start, end)
        except (FileNotFoundError, StallscopeError):
            raise
        except Exception as error:
            raise UnreadableError(
                f"{where}: cannot be read: {self.describe_error(error)}"
            ) from error

    def _where_of(self, name: str, path: str) -> str:
        base = self.where.rstrip("/")
        return base if base.endswith("/" + name) or has_magic(base) else f"{base}/{name}"

    def _bytes(
        self, file_system: fsspec.AbstractFileSystem, path: str, start: int, end: int | None
    ) -> bytes:
        if start == 0 and end is None:
            return bytes(file_system.cat_file(path))
        return bytes(file_system.cat_file(path, start=start, end=end))

    def describe_error(self, error: BaseException) -> str:
        """Describe an error of the place's client, without credentials of the URL."""
        message = reason(error)
        file = getattr(error, "filename", None)
        if file is not None and not self.local and str(file) not in self._text:
            # Not of the place itself: a key, or another file of the configuration.
            message = f"{message}: {file}"
        message = message.replace(self._text, self.where)
        for secret in secrets_of(self._text):
            message = message.replace(secret, "…")
        names = [kind.__name__ for kind in type(error).__mro__]
        meaning = next(
            (self.error_messages[name] for name in names if name in self.error_messages), "{error}"
        )
        return meaning.replace("{error}", message).replace("{seconds}", f"{self.timeout_seconds:g}")


@dataclass
class _FileReader:
    """Reads the bytes of one file; on another machine, it opens the place again."""

    place: Files
    path: str
    where: str
    size: int
    file_system: fsspec.AbstractFileSystem | None

    def __call__(self, start: int, end: int | None) -> bytes:
        place = self.place
        # Clients wait and try again, for a minute and more.
        with nullcontext() if place.local else announced_wait(place.where, "reading"):
            if self.file_system is None:
                self.file_system, _ = place._open_to_read()
            return place.read_bytes(self.file_system, self.path, self.where, self.size, start, end)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "file_system": None}


def has_folders(file_system: fsspec.AbstractFileSystem) -> bool:
    """Whether a file needs an existing folder; object stores have no folders."""
    protocol = file_system.protocol
    protocols = {protocol} if isinstance(protocol, str) else set(protocol)
    return bool(protocols & {"file", "local", "sftp", "ssh"})


# -- Suggest an existing path for a misspelt one --------------------------------------------------


def did_you_mean(missing: str) -> str:
    """Return "; did you mean PATH?" with a path that exists; empty if none is near the missing one."""
    path = Path(missing)
    # The first missing part is the misspelt one.
    while not path.parent.exists() and path.parent != path:
        path = path.parent
    with suppress(OSError), os.scandir(path.parent) as entries:
        names = [entry.name for entry in islice(entries, _MOST_ENTRIES)]
        near = get_close_matches(path.name, names, n=1)
        if near:
            return f"; did you mean {path.parent / near[0]}?"
    return ""
