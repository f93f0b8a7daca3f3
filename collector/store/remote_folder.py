"""Read and write the files of a store at a URL."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stallscope.errors import StallscopeError, UnreadableError, UsageError

from ..source_kinds import open_source
from ..sources.files import Files, has_folders


class RemoteFolder:
    """A folder at a URL; names of files are relative to it.

    Methods raise the errors of the place's client, which ``errors`` converts.

    Args:
        url: the URL of the folder.

    Raises:
        UsageError: if such URLs cannot be written to.
        MissingExtraError: if the library for the protocol is not installed.
        UnansweredError: if the server answers nothing.
        UnreadableError: if the place cannot be opened.
    """

    def __init__(self, url: str) -> None:
        # Most commands open no URL.
        from ..sources.web import WebFiles

        place = open_source(url)
        if not isinstance(place, Files) or isinstance(place, WebFiles):
            raise UsageError(
                f"{place.where}: a store must be a folder or a URL that can be written to"
            )
        self.where = place.where.rstrip("/")
        self._place = place
        place.require_answer()
        with self.errors():
            self._system, root = place.open_file_system()
        self._root = root.rstrip("/")
        self._has_folders = has_folders(self._system)

    @contextmanager
    def errors(
        self, name: str = "", kind: type[StallscopeError] = UnreadableError
    ) -> Iterator[None]:
        """Convert errors to one of this kind that names a file or folder."""
        try:
            yield
        except StallscopeError:
            raise
        except Exception as error:  # any library may raise its own errors
            what = "read" if kind is UnreadableError else "written"
            message = self._place.describe_error(error)
            raise kind(
                f"{self.where}/{name}".rstrip("/") + f": cannot be {what}: {message}"
            ) from error

    def folders(self) -> Iterator[str]:
        """Yield the names of the folders in this one."""
        self._system.invalidate_cache()
        try:
            listed = self._system.ls(self._root, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return
        for info in listed:
            if info["type"] == "directory":
                yield str(info["name"]).rstrip("/").rpartition("/")[2]

    def files_below(self, folder: str) -> set[str]:
        """Return the names of all files below a folder, relative to it."""
        root = self._path(folder)
        return {path.removeprefix(root + "/") for path in self._system.find(root)}

    def info(self, name: str) -> dict[str, Any] | None:
        """Return the metadata of a file; None if there is none."""
        try:
            return dict(self._system.info(self._path(name)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        try:
            return bytes(self._system.cat_file(self._path(name)))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def age(self, name: str) -> timedelta:
        """Return the time since a file was changed."""
        changed: datetime = self._system.modified(self._path(name))
        return datetime.now(UTC) - changed.astimezone(UTC)

    def get(self, name: str, local: Path) -> None:
        """Download a file."""
        self._system.get_file(self._path(name), str(local))

    def put(self, name: str, local: Path) -> None:
        """Upload a file."""
        self._make_folder_of(name)
        self._system.put_file(str(local), self._path(name))

    def write(self, name: str, data: bytes, **conditions: Any) -> None:
        """Write a file, so that readers see its old content or the new one.

        Args:
            conditions: the result of ``conditional_options``.
        """
        path = self._path(name)
        if not self._has_folders:
            self._system.pipe_file(path, data, **conditions)
            return
        self._make_folder_of(name)
        folder, _, file = path.rpartition("/")
        draft = f"{folder}/.{file}.{secrets.token_hex(4)}"
        self._system.pipe_file(draft, data)
        self._system.mv(draft, path)

    def conditional_options(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the options of ``write`` that make it fail if the file no longer has this metadata."""
        return self._place.conditional_options(info)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._system.rm_file(self._path(name))

    def _make_folder_of(self, name: str) -> None:
        if self._has_folders:
            self._system.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
