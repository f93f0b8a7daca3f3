"""Files and folders, local or anywhere that fsspec can open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fsspec
from fsspec.core import url_to_fs

from stallscope.errors import NotFoundError, UnreadableError

# Deep enough for any launcher's folders, and an end where links run in circles.
_DEEPEST = 12


@dataclass(frozen=True)
class SourceFile:
    """A file at a source. ``name`` is relative to what the user named."""

    name: str
    path: str
    size: int
    file_system: fsspec.AbstractFileSystem

    def read(self) -> bytes:
        """All of its bytes.

        Raises:
            UnreadableError: if the place does not give them.
        """
        try:
            return bytes(self.file_system.cat_file(self.path))
        except Exception as error:
            raise UnreadableError(f"{self.path}: cannot be read: {_reason(error)}") from error


def find_files(source: str) -> list[SourceFile]:
    """All files at a source: the file itself, or everything below a folder.

    Raises:
        NotFoundError: if there is nothing at that place.
        UnreadableError: if the place cannot be reached.
    """
    try:
        file_system, path = url_to_fs(source)
        if file_system.isfile(path):
            return [
                SourceFile(Path(path).name, path, int(file_system.size(path) or 0), file_system)
            ]
        if not file_system.exists(path):
            raise NotFoundError(f"{source}: there is no such file or folder")
        return sorted(_below(file_system, path), key=lambda file: file.name)
    except (NotFoundError, UnreadableError):
        raise
    except Exception as error:
        raise UnreadableError(f"{source}: cannot be opened: {_reason(error)}") from error


def _below(file_system: fsspec.AbstractFileSystem, root: str) -> Iterator[SourceFile]:
    found = file_system.find(root, maxdepth=_DEEPEST, detail=True)
    prefix = root.rstrip("/") + "/"
    for path, info in found.items():
        yield SourceFile(path.removeprefix(prefix), path, int(info.get("size") or 0), file_system)


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
