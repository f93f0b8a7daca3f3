"""Files and folders, local or anywhere that fsspec can open; names may hold ``*``, ``?`` and ``[…]``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import fsspec
from fsspec.core import has_magic, url_to_fs

from stallscope.errors import MissingExtraError, NotFoundError, UnreadableError, UsageError

from .base import Source, SourceFile, reason

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
    "modified",
)
# The extra that brings what opens a protocol; other ones are said by fsspec itself.
_EXTRAS = {"s3": "s3", "s3a": "s3", "ssh": "ssh", "sftp": "ssh"}
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class Files(Source):
    """A file, everything below a folder, or all that a pattern matches."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.where = without_credentials(text)
        self.local = "://" not in text or text.startswith(("file://", "local://", "memory://"))

    def is_there(self) -> bool:
        """Whether there is a file or folder of this name."""
        file_system, path = self._opened()
        return bool(file_system.exists(path))

    def files(self) -> list[SourceFile]:
        try:
            file_system, path = self._opened()
            # What other processes have written since is there, too.
            file_system.invalidate_cache()
            found = self._found(file_system, path)
        except (NotFoundError, UnreadableError, UsageError, MissingExtraError):
            raise
        except Exception as error:
            raise UnreadableError(
                f"{self.where}: cannot be opened: {self._said(reason(error))}"
            ) from error
        return sorted(found, key=lambda file: file.name)

    def _opened(self) -> tuple[fsspec.AbstractFileSystem, str]:
        protocol = "" if _WINDOWS_DRIVE.match(self._text) else urlsplit(self._text).scheme
        try:
            file_system, path = url_to_fs(self._text, **_options(protocol))
        except ImportError as error:
            extra = _EXTRAS.get(protocol)
            if extra:
                raise MissingExtraError(extra, f"support for {protocol}://") from error
            raise UsageError(f"{self.where}: cannot be opened: {reason(error)}") from error
        except ValueError as error:
            said = self._said(reason(error))
            raise UsageError(f"{self.where}: cannot be opened: {said}") from error
        return file_system, path

    def _found(self, file_system: fsspec.AbstractFileSystem, path: str) -> list[SourceFile]:
        if has_magic(path) and not file_system.exists(path):
            return self._matching(file_system, path)
        if file_system.isfile(path):
            info = file_system.info(path)
            return [self._file(file_system, PurePosixPath(path).name, path, info)]
        if not file_system.exists(path):
            raise NotFoundError(f"{self.where}: there is no such file or folder")
        return [*self._below(file_system, path, PurePosixPath(path))]

    def _matching(self, file_system: fsspec.AbstractFileSystem, pattern: str) -> list[SourceFile]:
        """Files that match, and all that is below folders that do; named below what has no pattern."""
        fixed = PurePosixPath(pattern)
        while has_magic(str(fixed)):
            fixed = fixed.parent
        matches = file_system.glob(pattern, detail=True)
        if not matches:
            raise NotFoundError(f"{self.where}: nothing matches")
        found = {}
        for path, info in matches.items():
            if info["type"] == "directory":
                found.update({f.name: f for f in self._below(file_system, path, fixed)})
            else:
                name = str(PurePosixPath(path).relative_to(fixed))
                found[name] = self._file(file_system, name, path, info)
        return list(found.values())

    def _below(
        self, file_system: fsspec.AbstractFileSystem, folder: str, root: PurePosixPath
    ) -> Iterable[SourceFile]:
        found = file_system.find(folder, maxdepth=_DEEPEST, detail=True)
        prefix = str(root).rstrip("/") + "/"
        for path, info in found.items():
            yield self._file(file_system, path.removeprefix(prefix), path, info)

    def _file(
        self, file_system: fsspec.AbstractFileSystem, name: str, path: str, info: dict[str, Any]
    ) -> SourceFile:
        def reads(start: int, end: int | None) -> bytes:
            if start == 0 and end is None:
                return bytes(file_system.cat_file(path))
            return bytes(file_system.cat_file(path, start=start, end=end))

        version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
        where = path if self.local else self._beside(name, path)
        return SourceFile(name, where, int(info.get("size") or 0), version, reads)

    def _beside(self, name: str, path: str) -> str:
        base = self.where.rstrip("/")
        return base if base.endswith("/" + name) or has_magic(base) else f"{base}/{name}"

    def _said(self, text: str) -> str:
        """Somebody else's message without the credentials that the URL had."""
        return text.replace(self._text, self.where)


def _options(protocol: str) -> dict[str, Any]:
    # Listings of object stores are cached for the life of the process unless said otherwise.
    return {} if protocol in ("", "file", "local", "memory") else {"use_listings_cache": False}


def without_credentials(url: str) -> str:
    """A URL without password, query and fragment, which may be secrets; the user's name stays."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, user.partition(":")[0] + at + host, parts.path, "", ""))
