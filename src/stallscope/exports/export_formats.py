"""The export formats by name, and writing them whole or not at all."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, BinaryIO, cast

from stallscope.collector.store.layout import written_whole
from stallscope.errors import UnwritableError, UsageError, WouldOverwriteError
from stallscope.plugins import plugins

from .exported_run import ExportedRun
from .scalars import run_id_of

#: TensorBoard finds files by the part ``tfevents`` of their names.
TENSORBOARD_FILE = "events.out.tfevents.0.stallscope"
_GZIP = ".gz"
# Higher levels take twice the time for a few hundredths of the size.
_LEVEL = 6


def _of(name: str) -> Callable[..., Any]:
    """Return a function that imports the real one when it is called: formats use large libraries."""

    def call(*arguments: Any) -> Any:
        return resolve_name(f"{__package__}.{name}")(*arguments)

    return call


@dataclass(frozen=True)
class Export:
    """An export format. A new one is a function in a new file, and an entry below."""

    #: The name for ``--format``.
    name: str
    #: Writes a run piece by piece, so that long runs need little more memory than short ones.
    write: Callable[[ExportedRun, BinaryIO], None]
    #: Whether the file may be gzipped: formats with their own compression gain nothing.
    may_be_gzipped: bool = True
    #: Raises MissingExtraError if something that writing needs is not installed.
    check: Callable[[], object] = lambda: None
    #: The name of the file in the folder that ``--out`` names; empty if ``--out`` names the file.
    file_name: str = ""


@dataclass(frozen=True)
class FolderExport:
    """An export format with a library that makes a new folder in the one that ``--out`` names."""

    name: str
    #: Writes a run into an empty folder, and returns the folder that it has made below it.
    write: Callable[[ExportedRun, Path], Path]
    check: Callable[[], object]


@dataclass(frozen=True)
class ServerExport:
    """An export to a server: ``--out`` names a run on it."""

    name: str
    write: Callable[[ExportedRun, str], None]
    #: Raises UsageError if the name is invalid.
    check_place: Callable[[str], object]
    check: Callable[[], object] = lambda: None


AnyExport = Export | FolderExport | ServerExport


PERFETTO = Export(
    "perfetto",
    _of("perfetto:write_perfetto"),
    may_be_gzipped=False,
    check=_of("perfetto:import_perfetto"),
)


EXPORTS: tuple[AnyExport, ...] = (
    PERFETTO,
    Export("chrome", _of("chrome:write_chrome")),
    Export("parquet", _of("table:write_parquet"), may_be_gzipped=False),
    Export("csv", _of("csv_events:write_csv_table")),
    Export("events-csv", _of("csv_events:write_csv_events")),
    Export(
        "tensorboard",
        _of("tensorboard_file:write_tensorboard"),
        may_be_gzipped=False,
        file_name=TENSORBOARD_FILE,
    ),
    FolderExport("wandb", _of("live:write_wandb"), check=_of("live:import_wandb")),
    ServerExport("mlflow", _of("scalars:write_mlflow"), check_place=run_id_of),
)


@cache
def _exports() -> tuple[AnyExport, ...]:
    """Return all formats, with those of other packages by the names of their entry points."""
    kinds = (Export, FolderExport, ServerExport)
    parts = plugins("exports", kinds, lambda: [export.name for export in EXPORTS])
    return *EXPORTS, *(replace(plugin.part, name=plugin.name) for plugin in parts)


def names() -> list[str]:
    """Return the names for ``--format``."""
    return [export.name for export in _exports()]


def by_name(name: str) -> AnyExport:
    """Return the format of this name.

    Raises:
        UsageError: if there is none; the message lists the formats.
    """
    for export in _exports():
        if export.name == name:
            return export
    raise UsageError(f"no export format {name!r}: there are {', '.join(names())}")


# -- Write complete exports only, and replace files only with ``--force`` -------------------------


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
