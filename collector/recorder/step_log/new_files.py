"""Write a file as a whole, under a name that no other file has."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
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
        # A server may repeat a request that has succeeded.
        if not unfinished.samefile(path):
            raise
    except OSError:
        _publish_first(unfinished, path)


def _publish_first(unfinished: Path, path: Path) -> None:
    """Give a file its final name where the file system has no hard links.

    A file would replace another one, but a folder replaces no folder that has files. So the first
    process moves a folder with its text to the claim, and each process publishes the text of the claim.
    So no process waits for one that may have ended.

    Raises:
        FileExistsError: if the name is taken.
    """
    text = unfinished.read_text()
    claim = path.parent / (".%s.claim" % path.name)
    folder = unfinished.with_suffix(".folder")
    try:
        folder.mkdir()
        (folder / path.name).write_text(text)
        with contextlib.suppress(OSError):
            folder.rename(claim)
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)
    # A claim is removed once its text is published. Later claims count for nothing: the file is there.
    with contextlib.suppress(FileNotFoundError):
        first_text = (claim / path.name).read_text()
        if not path.exists():
            with _unfinished(path.parent, path.name, first_text) as copy:
                copy.replace(path)
    shutil.rmtree(str(claim), ignore_errors=True)
    if not path.exists():
        # Folders cannot be moved here. Readers wait until the file has its text.
        with path.open("x") as file:
            file.write(text)
    elif path.read_text() != text:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
