"""Copy remote files to a local disk while they are read, for places without range requests."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

#: Writes a whole file to a path.
Download = Callable[[Path], object]


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
