"""Reports: each family turns its result into a document, and each format draws any document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report_formats import ReportFormat

__all__ = ["ReportFormat"]


def __getattr__(name: str) -> Any:
    """Import the class on first use: plug-ins need it, and most modules here need less."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .report_formats import ReportFormat

    return ReportFormat
