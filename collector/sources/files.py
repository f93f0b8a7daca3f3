"""Files and folders, local or anywhere that fsspec can open; names may hold ``*``, ``?`` and ``[…]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import fsspec
from fsspec.core import has_magic, url_to_fs

from stallscope.errors import (
    MissingExtraError,
    NotFoundError,
    StallscopeError,
    UnreadableError,
    UsageError,
)

from .base import Source, SourceFile, reason
from .joined import joined

# Deep enough for any launcher's folders, and an end where links run in circles.
_DEEPEST = 12
# What tells one state of a file from another, by file system: the first that is there.
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
# The extra that brings what opens a protocol; other ones are said by fsspec itself.
_EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "azure"),
    **dict.fromkeys(("ssh", "sftp"), "ssh"),
}
# Listed folder by folder; what fsspec finds there lacks folders that it could not list.
_WALKED = ("", "file", "local", "ssh", "sftp", "hdfs", "webhdfs")
# Without folders, so without links that run in circles: one listing for all.
_FLAT = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
#: What it means when nothing came in time, by the names that clients have for it.
SILENT = dict.fromkeys(
    (
        "TimeoutError",
        "ReadTimeoutError",
        "ConnectTimeoutError",
        "ServiceResponseTimeoutError",
        "Timeout",
    ),
    "nothing came from there for {seconds} s",
)
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class Files(Source):
    """A file, everything below a folder, or all that a pattern matches."""

    travels = True
    #: What errors of a kind of place mean, by the names of their classes, for those are there only with
    #: an extra; ``{said}`` is the error's own message, ``{seconds}`` the patience.
    meanings: Mapping[str, str] = MappingProxyType({})
    #: For so long a place that is far away may say nothing; bytes that come slowly are waited for.
    patience_seconds = 15.0
    #: So often its client asks for the same, where that is not a setting of the user's own.
    attempts = 3

    def __init__(self, text: str) -> None:
        self._text = text
        self._protocol = "" if _WINDOWS_DRIVE.match(text) else urlsplit(text).scheme
        self.where = without_credentials(text)
        self.local = "://" not in text or text.startswith(("file://", "local://", "memory://"))

    def __reduce__(self) -> tuple[type[Files], tuple[str]]:
        # What is open stays where it is: connections, keys that were found, locks.
        return type(self), (self._text,)

    def is_there(self) -> bool:
        """Whether there is a file or folder of this name."""
        file_system, path = self.opened()
        return bool(file_system.exists(path))

    def files(self) -> list[SourceFile]:
        try:
            file_system, path = self.opened()
            # What other processes have written since is there, too.
            file_system.invalidate_cache()
            found = self._found(file_system, path)
        except StallscopeError:
            raise
        except Exception as error:
            raise UnreadableError(f"{self.where}: cannot be opened: {self._said(error)}") from error
        # Downloaded from MLflow, or in its server's folder, logs are in chunks.
        return joined(found)

    def opened(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """The file system that has it, and what it is called there.

        Raises:
            MissingExtraError: where what opens such places is not installed.
            UsageError: if the words do not fit.
        """
        try:
            return self._file_system()
        except ImportError as error:
            extra = _EXTRAS.get(self._protocol)
            if extra:
                raise MissingExtraError(extra, f"support for {self._protocol}://") from error
            package = error.name
            said = f"it needs {package}: pip install {package}" if package else reason(error)
            raise UsageError(f"{self.where}: cannot be opened: {said}") from error
        except ValueError as error:
            said = self._said(error)
            raise UsageError(f"{self.where}: cannot be opened: {said}") from error

    def means(self, error: BaseException) -> str:
        """What an error of the place's client means, without the credentials that the URL had."""
        return self._said(error)

    def only_over(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return options that make putting an object fail if another process has put one, for
        ``pipe_file``; nothing where the place or its client cannot tell.

        Args:
            info: the state of the object that is to be replaced; None: there was none.
        """
        return {}

    def _file_system(self) -> tuple[fsspec.AbstractFileSystem, str]:
        kind = self._kind()
        if kind is None:
            file_system, path = url_to_fs(self._text, **self._options())
            return file_system, path
        options = {**kind._get_kwargs_from_urls(self._text), **self._options()}
        return kind(**options), kind._strip_protocol(self._text)

    def _kind(self) -> type[fsspec.AbstractFileSystem] | None:
        """The class of file system, where fsspec's own choice will not do."""
        return None

    def _options(self) -> dict[str, Any]:
        """What a file system is told when it is opened."""
        # Listings of object stores are cached for the life of the process unless said otherwise.
        own = ("", "file", "local", "memory")
        return {} if self._protocol in own else {"use_listings_cache": False}

    def _found(self, file_system: fsspec.AbstractFileSystem, path: str) -> list[SourceFile]:
        # Asked once and not "is it a file?" first: that says no where the place cannot be reached.
        try:
            info = file_system.info(path)
        except (FileNotFoundError, NotADirectoryError):
            if has_magic(path):
                return self._matching(file_system, path)
            raise NotFoundError(f"{self.where}: there is no such file or folder") from None
        if info["type"] == "directory" or self._is_placeholder(file_system, path, info):
            return [*self._below(file_system, path, PurePosixPath(path))]
        return [self._file(file_system, PurePosixPath(path).name, path, info)]

    def _is_placeholder(
        self, file_system: fsspec.AbstractFileSystem, path: str, info: dict[str, Any]
    ) -> bool:
        """Whether what looks like an empty file stands for a folder; some clients show it so."""
        if self._protocol not in _FLAT or info.get("size"):
            return False
        return any(one.startswith(path.rstrip("/") + "/") for one in file_system.find(path))

    def _matching(self, file_system: fsspec.AbstractFileSystem, pattern: str) -> list[SourceFile]:
        """Files that match, and all that is below folders that do; named below what has no pattern."""
        fixed = PurePosixPath(pattern)
        while has_magic(str(fixed)):
            fixed = fixed.parent
        matches: dict[str, Any] = {}
        # Some say so of a whole bucket that is not there.
        with suppress(FileNotFoundError):
            matches = file_system.glob(pattern, detail=True)
        if not matches:
            raise NotFoundError(f"{self.where}: nothing matches")
        found = {}
        for path, listed in matches.items():
            info = _followed(file_system, path, listed)
            if info["type"] == "directory":
                found.update({f.name: f for f in self._below(file_system, path, fixed)})
            elif info["type"] == "file":
                name = str(PurePosixPath(path).relative_to(fixed))
                found[name] = self._file(file_system, name, path, info)
        return list(found.values())

    def _below(
        self, file_system: fsspec.AbstractFileSystem, folder: str, root: PurePosixPath
    ) -> Iterable[SourceFile]:
        prefix = str(root).rstrip("/") + "/"
        for path, listed in self._listed(file_system, folder).items():
            info = _followed(file_system, path, listed)
            # Object stores' own pages make empty objects that stand for folders.
            if info["type"] == "file" and not path.endswith("/"):
                yield self._file(file_system, path.removeprefix(prefix), path, info)

    def _listed(
        self, file_system: fsspec.AbstractFileSystem, folder: str
    ) -> dict[str, dict[str, Any]]:
        if self._protocol in _FLAT:
            return dict(file_system.find(folder, detail=True))
        if self._protocol in _WALKED:
            return _walked(file_system, folder)
        return dict(file_system.find(folder, maxdepth=_DEEPEST, detail=True))

    def _file(
        self, file_system: fsspec.AbstractFileSystem, name: str, path: str, info: dict[str, Any]
    ) -> SourceFile:
        where = path if self.local else self._beside(name, path)
        size = int(info.get("size") or 0)
        reads = _Reads(self, path, where, size, file_system)
        version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
        return SourceFile(name, where, size, version, reads)

    def read_part(
        self,
        file_system: fsspec.AbstractFileSystem,
        path: str,
        where: str,
        size: int,
        start: int,
        end: int | None,
    ) -> bytes:
        """Bytes of a file that was listed with this size.

        Raises:
            FileNotFoundError, UnreadableError: if they cannot be read; ``where`` is what messages name.
        """
        if not size and self._protocol in _FLAT:
            # Or it stands for a folder: clients that took the slash from its name do not find it.
            return b""
        try:
            return self._bytes(file_system, path, start, end)
        except (FileNotFoundError, StallscopeError):
            raise
        except Exception as error:
            raise UnreadableError(f"{where}: cannot be read: {self._said(error)}") from error

    def _beside(self, name: str, path: str) -> str:
        base = self.where.rstrip("/")
        return base if base.endswith("/" + name) or has_magic(base) else f"{base}/{name}"

    def _bytes(
        self, file_system: fsspec.AbstractFileSystem, path: str, start: int, end: int | None
    ) -> bytes:
        if start == 0 and end is None:
            return bytes(file_system.cat_file(path))
        return bytes(file_system.cat_file(path, start=start, end=end))

    def _said(self, error: BaseException) -> str:
        """What an error means, without the credentials that the URL had."""
        said = reason(error).replace(self._text, self.where)
        for secret in _secrets(self._text):
            said = said.replace(secret, "…")
        names = [kind.__name__ for kind in type(error).__mro__]
        meaning = next((self.meanings[name] for name in names if name in self.meanings), "{said}")
        return meaning.replace("{said}", said).replace("{seconds}", f"{self.patience_seconds:g}")


@dataclass
class _Reads:
    """Gives the bytes of one file; on another machine it opens the place anew."""

    place: Files
    path: str
    where: str
    size: int
    file_system: fsspec.AbstractFileSystem | None

    def __call__(self, start: int, end: int | None) -> bytes:
        if self.file_system is None:
            self.file_system, _ = self.place.opened()
        return self.place.read_part(self.file_system, self.path, self.where, self.size, start, end)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "file_system": None}


def has_folders(file_system: fsspec.AbstractFileSystem) -> bool:
    """Whether a file needs its folder to be made before it; object stores have none."""
    return bool(_protocols(file_system) & {"file", "local", "sftp", "ssh"})


def _protocols(file_system: fsspec.AbstractFileSystem) -> set[str]:
    protocol = file_system.protocol
    return {protocol} if isinstance(protocol, str) else set(protocol)


def _walked(file_system: fsspec.AbstractFileSystem, folder: str) -> dict[str, dict[str, Any]]:
    """What is below a folder; one that cannot be listed is not left out without a word."""
    found = {}
    folders = [folder]
    for _ in range(_DEEPEST):
        below = []
        for one in folders:
            with suppress(FileNotFoundError):
                for info in file_system.ls(one, detail=True):
                    if info["type"] == "directory":
                        below.append(info["name"])
                    else:
                        found[info["name"]] = info
        folders = below
    return found


def _followed(
    file_system: fsspec.AbstractFileSystem, path: str, info: dict[str, Any]
) -> dict[str, Any]:
    """What a link leads to; pipes, devices and links to nowhere are neither file nor folder."""
    if info["type"] in ("file", "directory"):
        return info
    try:
        return dict(file_system.info(path))
    except PermissionError:
        raise
    except Exception as error:
        # Over ssh, a link that runs in a circle is only a failure.
        if isinstance(error, OSError) or type(error).__name__ == "SFTPFailure":
            return info
        raise


def _secrets(url: str) -> list[str]:
    """What may be secret in a URL: the password, as written and as sent, and the query."""
    parts = urlsplit(url)
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    return [secret for secret in (password, unquote(password), parts.query) if secret]


def without_credentials(url: str) -> str:
    """A URL without password, query and fragment, which may be secrets; the user's name stays."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, user.partition(":")[0] + at + host, parts.path, "", ""))
