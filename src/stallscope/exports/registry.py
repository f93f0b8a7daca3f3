"""The export formats."""

from __future__ import annotations

from stallscope.errors import UsageError

from .base import Export
from .chrome import ChromeExport
from .csv_events import CsvEventsExport
from .csv_table import CsvExport
from .parquet import ParquetExport
from .perfetto import PerfettoExport

EXPORTS: tuple[Export, ...] = (
    PerfettoExport(),
    ChromeExport(),
    ParquetExport(),
    CsvExport(),
    CsvEventsExport(),
)


def names() -> list[str]:
    """Return the names for ``--format``."""
    return [export.name for export in EXPORTS]


def by_name(name: str) -> Export:
    """Return the format of this name.

    Raises:
        UsageError: if there is none; the message lists the formats.
    """
    for export in EXPORTS:
        if export.name == name:
            return export
    raise UsageError(f"no export format {name!r}: there are {', '.join(names())}")
