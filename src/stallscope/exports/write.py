"""Write complete exports only, and replace files only with ``--force``."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from stallscope.collector.store.layout import written_whole
from stallscope.errors import UnwritableError, UsageError, WouldOverwriteError

from .generations import ExportedRun
from .registry import AnyExport, Export, FolderExport, ServerExport

_GZIP = ".gz"
# Higher levels take twice the time for a few hundredths of the size.
_LEVEL = 6


def place_of(export: AnyExport, out: Path) -> Path:
    """Return the target of ``--out``: a file, the folder for a new one, or a server's run."""
    return out / export.file_name if isinstance(export, Export) else out


def check_path(export: AnyExport, path: Path, force: bool) -> None:
    """Check, before anything is read, that the place may be written to.

    Args:
        path: as ``place_of`` returns it.

    Raises:
        UsageError: if the name does not fit the format.
        WouldOverwriteError: if a file is there already and ``force`` is not given.
    """
    if isinstance(export, Export):
        if path.name.endswith(_GZIP) and not export.may_be_gzipped:
            raise UsageError(
                f"{path}: {export.name} files are compressed already; name the file without {_GZIP}"
            )
        if path.is_dir():
            raise UsageError(f"{path}: this is a folder; name a file in it with --out")
        _refuse_to_overwrite(path, force)
    elif isinstance(export, ServerExport):
        export.check_place(str(path))
    elif os.path.lexists(path) and not path.is_dir():
        raise UsageError(f"{path}: this is a file; name a folder with --out")


def _refuse_to_overwrite(path: Path, force: bool) -> None:
    if not force and os.path.lexists(path):
        raise WouldOverwriteError(
            f"{path} already exists: add --force to replace it, or name another file with --out; "
            "nothing was written"
        )


def write_export(export: AnyExport, exported: ExportedRun, path: Path, force: bool = False) -> Path:
    """Write an export; create its folder if it is missing. Return the file, or the new folder.

    Raises:
        UsageError, WouldOverwriteError: as ``check_path``.
        UnwritableError: if it cannot be written; then nothing is left there.
    """
    check_path(export, path, force)
    if isinstance(export, ServerExport):
        export.write(exported, str(path))
        return path
    try:
        if isinstance(export, FolderExport):
            return _write_folder(export, exported, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as draft, draft.open("wb") as file:
            _write(export, exported, file, path.name.endswith(_GZIP))
        return path
    except OSError as error:
        raise UnwritableError(
            f"{path}: the export cannot be written here ({error.strerror or error}); "
            "name another file with --out"
        ) from error


def _write_folder(export: FolderExport, exported: ExportedRun, path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".stallscope-", dir=path) as draft:
        output = export.write(exported, Path(draft))
        return output.rename(path / output.name)


def _write(export: Export, exported: ExportedRun, file: BinaryIO, gzipped: bool) -> None:
    if not gzipped:
        export.write(exported, file)
        return
    # Without name and time, so that equal exports have equal bytes.
    with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
        export.write(exported, cast(BinaryIO, packed))
