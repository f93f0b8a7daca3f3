"""Write a file as a whole, under a name that no other file has."""

from __future__ import annotations

import contextlib
import itertools
import os
import uuid
from pathlib import Path
from typing import Iterator


def write_new(folder: Path, name: str, suffix: str, text: str) -> Path:
    """Write ``NAME.NUMBER.SUFFIX``, with the first free number from 0 on; readers only see it complete.

    Raises:
        OSError: if writing fails.
    """
    with _unfinished(folder, name, text) as unfinished:
        for number in itertools.count():
            path = folder / ("%s.%d%s" % (name, number, suffix))
            with contextlib.suppress(FileExistsError):
                _link(unfinished, path)
                return path
    raise AssertionError("unreachable: itertools.count() does not end")


def write_first(path: Path, text: str) -> bool:
    """Write a file unless it exists; return whether this process wrote it. Readers only see it complete.

    Raises:
        OSError: if writing fails.
    """
    if path.exists():
        return False  # most ranks come later than the first
    with _unfinished(path.parent, path.name, text) as unfinished:
        try:
            _link(unfinished, path)
        except FileExistsError:
            return False
    return True


@contextlib.contextmanager
def _unfinished(folder: Path, name: str, text: str) -> Iterator[Path]:
    """Write a hidden file, which the block may move to its final name."""
    # Hosts that share the folder may have processes with the same number.
    unfinished = folder / (".%s.%s.unfinished" % (name, uuid.uuid4().hex[:12]))
    try:
        unfinished.write_text(text)
        yield unfinished
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()


def _link(unfinished: Path, path: Path) -> None:
    """Give a file its final name.

    Raises:
        FileExistsError: if the name is taken.
    """
    try:
        os.link(str(unfinished), str(path))
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: claim the name, which only one process can.
        os.close(os.open(str(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        unfinished.replace(path)
