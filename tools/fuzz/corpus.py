"""Inputs that reach different code, one archive per target."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

KEPT = Path(__file__).parent / "corpus"


def kept(target: str) -> list[bytes]:
    """Return the kept inputs of a target; none without an archive."""
    path = _archive(target)
    if not path.exists():
        return []
    with tarfile.open(path) as archive:
        return [
            file.read() for member in archive if (file := archive.extractfile(member)) is not None
        ]


def keep(target: str, inputs: Iterable[bytes]) -> Path:
    """Write a target's archive again: the same inputs give the same bytes."""
    path = _archive(target)
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:xz", preset=9) as archive:
        # Sorted inputs with equal starts compress well.
        for data in sorted(set(inputs)):
            info = tarfile.TarInfo(hashlib.sha256(data).hexdigest()[:16])
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def _archive(target: str) -> Path:
    return KEPT / f"{target}.tar.xz"
