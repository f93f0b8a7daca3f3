"""Inputs that reach different code, one archive for each target."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

KEPT = Path(__file__).parent / "corpus"


def kept(target: str) -> list[bytes]:
    """The inputs that are kept of a target; none where there is no archive."""
    path = _archive(target)
    if not path.exists():
        return []
    with tarfile.open(path) as archive:
        return [file.read() for one in archive if (file := archive.extractfile(one)) is not None]


def keep(target: str, inputs: Iterable[bytes]) -> Path:
    """Write a target's archive anew: the same inputs give the same bytes."""
    path = _archive(target)
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:xz", preset=9) as archive:
        # Inputs that begin alike lie side by side, and take little room.
        for data in sorted(set(inputs)):
            info = tarfile.TarInfo(hashlib.sha256(data).hexdigest()[:16])
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def _archive(target: str) -> Path:
    return KEPT / f"{target}.tar.xz"
