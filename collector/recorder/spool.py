"""For mounts that cannot append, such as those of object stores: the log grows on the local disk.

It is copied to its place as a whole, at the ends of epochs, every few minutes, and at the end. So that
this does not become more and more, it goes on in another file when it has grown large. What a killed
process has not copied any more is still in the local file.
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

# What file systems say that take whole files only.
_CANNOT_APPEND = (
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EPERM,
)


def cannot_append(error: OSError) -> bool:
    """Whether this is how a file system says that it takes whole files only."""
    return error.errno in _CANNOT_APPEND


def is_to_be_spooled(folder: Path) -> bool:
    """Whether it is known without trying that logs in a folder must be whole files.

    Databricks' mounts take what is appended and show it, or lose it, when the file is closed.
    ``STALLSCOPE_SPOOL`` says of other ones that they do (1), or that all is well (0).
    """
    said = os.environ.get("STALLSCOPE_SPOOL")
    if said:
        return said != "0"
    text = str(folder) + "/"
    on_databricks = bool(os.environ.get("DATABRICKS_RUNTIME_VERSION"))
    return text.startswith("/dbfs/") or (on_databricks and text.startswith("/Volumes/"))


class SpooledSink:
    """A log on the local disk that is copied to where it belongs."""

    def __init__(self, path: Path, begin: bytes) -> None:
        """A log that begins with these bytes.

        Raises:
            OSError: if the local disk does not take it.
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
        """Whether it is large enough to go on in another file."""
        return self._written >= COPIED_PART_BYTES

    def write(self, data: bytes) -> None:
        self._written += len(data)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def publish(self) -> None:
        """Copy all of it to its place, if anything is new.

        Raises:
            OSError: if the place does not take it.
        """
        written = self._written
        if written > self._copied:
            shutil.copyfile(str(self._local), str(self._path))
            self._copied = written

    def close(self) -> None:
        """Copy all of it for the last time; the local file goes.

        Raises:
            OSError: if the place does not take it: then the local file stays.
        """
        os.close(self._descriptor)
        try:
            self.publish()
        except OSError as error:
            raise OSError("%s; the log is kept in %s" % (error, self._local)) from error
        shutil.rmtree(str(self._local.parent), ignore_errors=True)


class Copies:
    """When a spooled log is copied: all ranks end their epochs together, and each waits for its turn."""

    def __init__(self, rank: int, size: int, now: float) -> None:
        self._turn = turn_seconds(rank, size)
        self._shortest = max(SHORTEST_COPY_SECONDS, shortest_pause_seconds(size))
        self._longest = max(COPY_SECONDS, shortest_pause_seconds(size))
        self._earliest = now
        self._due = now + self._longest + self._turn

    def epoch_ended(self, now: float) -> None:
        """What was recorded is to be there soon."""
        self._due = min(self._due, max(now + self._turn, self._earliest))

    def is_due(self, now: float) -> bool:
        """Whether the log is to be copied now; says so once."""
        if now < self._due:
            return False
        self._earliest, self._due = now + self._shortest, now + self._longest
        return True
