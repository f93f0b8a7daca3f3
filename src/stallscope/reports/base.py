"""What a report is made of, and what it is given besides its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from stallscope import __version__
from stallscope.analysis import Analysis

from .content import Content
from .document import Document
from .records import Records


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


class Report(ABC):
    """Writes an analysis in one format. A new format is one file with one subclass, listed in
    ``registry.py``.
    """

    #: The name for ``--format``.
    name: ClassVar[str]
    #: How the names of its files end.
    suffix: ClassVar[str]

    @abstractmethod
    def render(self, analysis: Analysis, options: ReportOptions) -> str:
        """The whole report as text."""
