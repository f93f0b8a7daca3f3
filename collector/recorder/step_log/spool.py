"""Spool logs on the local disk for mounts that cannot append, such as object stores.

The log is copied to its place as a whole, at the ends of epochs, every few minutes, and at the end. A
large log continues in another file, so that copies stay small. If a process is killed, the local file
still has what was not copied.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from .rate_limits import (
    COPIED_PART_BYTES,
    COPY_SECONDS,
    SHORTEST_COPY_SECONDS,
    shortest_pause_seconds,
    turn_seconds,
)

# Errors of file systems that accept whole files only.
_CANNOT_APPEND = (
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EPERM,
)


def cannot_append(error: OSError) -> bool:
    """Return whether the error shows a file system that accepts whole files only."""
    return error.errno in _CANNOT_APPEND


def needs_spooling(folder: Path) -> bool:
    """Return whether logs in a folder are known to need spooling, without trying.

    Databricks' mounts accept appended data and show it, or lose it, when the file is closed.
    ``STALLSCOPE_SPOOL`` overrides the answer: 1 spools, 0 does not.
    """
    setting = os.environ.get("STALLSCOPE_SPOOL")
    if setting:
        return setting != "0"
    text = str(folder) + "/"
    on_databricks = bool(os.environ.get("DATABRICKS_RUNTIME_VERSION"))
    return text.startswith("/dbfs/") or (on_databricks and text.startswith("/Volumes/"))


class SpooledSink:
    """A log on the local disk that is copied to its place."""

    def __init__(self, path: Path, begin: bytes) -> None:
        """Start the log with these bytes.

        Raises:
            OSError: if the local disk does not accept it.
        """
        self._path = path
        self._local = Path(tempfile.mkdtemp(prefix="stallscope-")) / path.name
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
        self._descriptor = os.open(str(self._local), flags, 0o644)
        self._written = self._copied = 0
        self.write(begin)

    def __str__(self) -> str:
        return str(self._local)

    @property
    def is_full(self) -> bool:
        """Return whether the log should continue in another file."""
        return self._written >= COPIED_PART_BYTES

    def write(self, data: bytes) -> None:
        self._written += len(data)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def publish(self) -> None:
        """Copy the whole log to its place, if anything is new.

        Raises:
            OSError: if the place does not accept it.
        """
        written = self._written
        if written > self._copied:
            shutil.copyfile(str(self._local), str(self._path))
            self._copied = written

    def close(self) -> None:
        """Copy the whole log for the last time and delete the local file.

        Raises:
            OSError: if the place does not accept it; the local file stays.
        """
        os.close(self._descriptor)
        try:
            self.publish()
        except OSError as error:
            raise OSError("%s; the log is kept in %s" % (error, self._local)) from error
        shutil.rmtree(str(self._local.parent), ignore_errors=True)


class CopySchedule:
    """When to copy a spooled log: all ranks end their epochs together, so each waits for its turn."""

    def __init__(self, rank: int, size: int, now: float) -> None:
        self._turn = turn_seconds(rank, size)
        self._shortest = max(SHORTEST_COPY_SECONDS, shortest_pause_seconds(size))
        self._longest = max(COPY_SECONDS, shortest_pause_seconds(size))
        self._earliest = now
        self._due = now + self._longest + self._turn

    def epoch_ended(self, now: float) -> None:
        """Schedule a copy soon."""
        self._due = min(self._due, max(now + self._turn, self._earliest))

    def is_due(self, now: float) -> bool:
        """Return whether to copy the log now; true once per copy."""
        if now < self._due:
            return False
        self._earliest, self._due = now + self._shortest, now + self._longest
        return True
