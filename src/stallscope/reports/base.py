"""What a report consists of, and the options of reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from stallscope import __version__

from .content import Content
from .document import Document
from .records import Metric, Records


@dataclass(frozen=True)
class ReportOptions:
    """When, and by which version, reports are made."""

    generated_at: datetime
    version: str = __version__


@dataclass(frozen=True)
class Parts:
    """What a result says to each kind of reader; a format makes only the part that it writes."""

    #: For people: HTML, Markdown and the terminal.
    document: Callable[[], Document]
    #: For programs: JSON.
    content: Callable[[], Content]
    #: For spreadsheets: CSV. None if there is none.
    records: Callable[[], Records] | None = None
    #: For monitoring: OpenMetrics. None if there is none.
    metrics: Callable[[], Iterable[Metric]] | None = None
