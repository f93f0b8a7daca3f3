"""Write an export to a file: completely or not at all, never overwriting without ``--force``."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import BinaryIO, cast

from stallscope.collector.store.layout import written_whole
from stallscope.errors import UnwritableError, UsageError, WouldOverwriteError

from .generations import ExportedRun
from .registry import Export

_GZIP = ".gz"
# Higher levels take twice the time for a few hundredths of the size.
_LEVEL = 6


def check_path(export: Export, path: Path, force: bool) -> None:
    """Check, before anything is read, that the file may be written.

    Raises:
        UsageError: if the name does not fit the format.
        WouldOverwriteError: if a file is there already and ``force`` is not given.
    """
    if path.name.endswith(_GZIP) and not export.may_be_gzipped:
        raise UsageError(
            f"{path}: {export.name} files are compressed already; name the file without {_GZIP}"
        )
    if path.is_dir():
        raise UsageError(f"{path}: this is a folder; name a file in it with --out")
    if not force and os.path.lexists(path):
        raise WouldOverwriteError(
            f"{path} already exists: add --force to replace it, or name another file with --out; "
            "nothing was written"
        )


def write_export(export: Export, exported: ExportedRun, path: Path, force: bool = False) -> None:
    """Write an export; create its folder if it is missing.

    Raises:
        UsageError, WouldOverwriteError: as ``check_path``.
        UnwritableError: if it cannot be written; then nothing is left there.
    """
    check_path(export, path, force)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as draft, draft.open("wb") as file:
            _write(export, exported, file, path.name.endswith(_GZIP))
    except OSError as error:
        raise UnwritableError(
            f"{path}: the export cannot be written here ({error.strerror or error}); "
            "name another file with --out"
        ) from error


def _write(export: Export, exported: ExportedRun, file: BinaryIO, gzipped: bool) -> None:
    if not gzipped:
        export.write(exported, file)
        return
    # Without name and time, so that the same export gives the same bytes.
    with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
        export.write(exported, cast(BinaryIO, packed))
