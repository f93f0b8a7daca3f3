"""The contract of a report, and what it is given besides the analysis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from stallscope import __version__
from stallscope.analysis import Analysis


@dataclass(frozen=True)
class ReportOptions:
    """When, and by which version, reports are made."""

    generated_at: datetime
    version: str = __version__


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
