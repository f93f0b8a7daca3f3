"""Write a file as a whole, under the first number that no other file has."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path


def write_new(folder: Path, name: str, suffix: str, text: str) -> Path:
    """Write ``NAME.NUMBER.SUFFIX``, with the first free number from 0 on; readers only see it complete.

    Raises:
        OSError: if writing fails.
    """
    unfinished = folder / (".%s.%d.unfinished" % (name, os.getpid()))
    unfinished.write_text(text)
    try:
        for number in itertools.count():
            path = folder / ("%s.%d%s" % (name, number, suffix))
            with contextlib.suppress(FileExistsError):
                _link(unfinished, path)
                return path
        raise AssertionError("unreachable: itertools.count() does not end")
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
        # A file system without hard links; no other process writes files of this name.
        if path.exists():
            raise FileExistsError(str(path)) from None
        unfinished.replace(path)
