"""The export formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, BinaryIO

from stallscope.errors import UsageError

from .generations import ExportedRun
from .mlflow_metrics import run_id_of
from .tensorboard import FILE_NAME


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
    Export("csv", _of("csv_table:write_csv_table")),
    Export("events-csv", _of("csv_events:write_csv_events")),
    Export(
        "tensorboard",
        _of("tensorboard:write_tensorboard"),
        may_be_gzipped=False,
        file_name=FILE_NAME,
    ),
    FolderExport("wandb", _of("wandb_run:write_wandb"), check=_of("wandb_run:import_wandb")),
    ServerExport("mlflow", _of("mlflow_metrics:write_mlflow"), check_place=run_id_of),
)


def names() -> list[str]:
    """Return the names for ``--format``."""
    return [export.name for export in EXPORTS]


def by_name(name: str) -> AnyExport:
    """Return the format of this name.

    Raises:
        UsageError: if there is none; the message lists the formats.
    """
    for export in EXPORTS:
        if export.name == name:
            return export
    raise UsageError(f"no export format {name!r}: there are {', '.join(names())}")
