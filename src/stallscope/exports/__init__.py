"""Exports: a run as a trace for timeline viewers, or as a table; one file per format.

``exported_run`` puts generations on one time line. ``trace`` makes slices, counters and marks of them,
``table`` a row per step and rank; the formats write these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .export_formats import Export, FolderExport, ServerExport

__all__ = ["Export", "FolderExport", "ServerExport"]


def __getattr__(name: str) -> Any:
    """Import the kinds of exports on first use: plug-ins need them, and most commands do not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import export_formats

    return getattr(export_formats, name)
