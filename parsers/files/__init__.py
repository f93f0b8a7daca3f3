"""The bytes of files: archives, compression, ranges of files at sources."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stallscope.collector.sources.source import SourceFile

_ARCHIVE = re.compile(r"\.(tar(?:\.(?:gz|bz2|xz|zst|lz4))?|tgz|tbz2?|txz|tzst|zip)$", re.IGNORECASE)


def archive_kind(name: str) -> str:
    """Return an archive's kind by the ending of its name, such as ``tar.gz``; empty for other files."""
    ending = _ARCHIVE.search(name)
    return "" if ending is None else ending[1].lower()


def with_members(files: Iterable[SourceFile], *, local: bool) -> list[SourceFile]:
    """Replace archives by their files; an unreadable archive stays, and raises when it is read.

    Args:
        files: the files of a place.
        local: whether reading parts of them is cheap.
    """
    all_files: list[SourceFile] = []
    for file in files:
        if not archive_kind(file.name):
            all_files.append(file)
            continue
        # Most places have no archives.
        from .archives import members_of

        all_files += members_of(file, local=local)
    return all_files
