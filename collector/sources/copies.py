"""Far files on this machine's disk while they are read, for places that give them as wholes only."""

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


class Copies:
    """The copies of one place's files. They go when they were read to their ends, or with the place.

    Args:
        kind: of place, in the folder's name.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def has(self, path: str) -> bool:
        """Whether there is a copy of a file."""
        return self._local(path).exists()

    def forget(self, path: str) -> None:
        """A file may have changed since: the next one who wants it gets it anew."""
        self._local(path).unlink(missing_ok=True)

    def size(self, path: str, download: Download) -> int:
        """How many bytes a file has; there is a copy of it then."""
        return self._brought(path, download).stat().st_size

    def read(self, path: str, download: Download, start: int, end: int | None) -> bytes:
        """Bytes of a file from a position to another one (None: its end).

        Args:
            path: what the file is called at the place.
            download: brings it where there is no copy yet.
        """
        local = self._brought(path, download)
        with local.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(start)
            data = file.read(-1 if end is None else end - start)
        if end is None or end >= size:
            # Read to its end: it is not needed any more.
            local.unlink(missing_ok=True)
        return data

    def _brought(self, path: str, download: Download) -> Path:
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
