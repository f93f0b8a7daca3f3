"""Timelines as files, compressed or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from stallscope.errors import NotFoundError, UnreadableError

from ..unpacking import is_packed, unpacking
from .reader import HEAD_BYTES, TimelineReader


@contextmanager
def open_timeline(path: str | Path) -> Iterator[TimelineReader]:
    """Open a timeline, which may be compressed.

    Raises:
        NotFoundError: if there is no such file.
        UnreadableError: if it cannot be read, or unpacked.
    """
    try:
        with Path(path).open("rb") as file:
            yield timeline_reader(str(path), file)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file") from None
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None


def timeline_reader(name: str, file: BinaryIO) -> TimelineReader:
    """Return a reader of a timeline in an open file, which may be compressed.

    Raises:
        UnreadableError: if it can be unpacked only with an extra that is not installed.
    """
    head = file.read(HEAD_BYTES)
    file.seek(0)
    return TimelineReader(name, unpacking(name, file, head) if is_packed(head) else file)
