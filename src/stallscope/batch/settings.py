"""What every run of a batch is reported with; it travels to the processes that do the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from stallscope.analysis import Analysis
from stallscope.reports.base import ReportOptions

#: Files in a folder, one JSON array, or summaries for a terminal.
Output = Literal["files", "json", "terminal"]


@dataclass(frozen=True)
class Settings:
    """How runs are read, taken apart and shown."""

    output: Output
    report: ReportOptions
    #: Of this batch alone: copies of far runs, and documents that wait to be printed.
    scratch: Path
    out: Path
    formats: tuple[str, ...] = ()
    read_as: str | None = None
    #: GB/s of bus bandwidth that the network gives.
    bandwidth: float | None = None
    #: As ``--what-if`` takes them.
    questions: tuple[str, ...] = ()
    #: As ``--fail-if`` takes them.
    conditions: tuple[str, ...] = ()
    anonymous: bool = False
    #: Whether single reports are wanted as Markdown, too.
    markdown: bool = False
    #: Called with every analysis and its run's source; returns what it did.
    afterwards: Callable[[Analysis, str], str] | None = None
    #: Whether several runs are reported: then nothing is held between the passes.
    many: bool = False
    #: Whether it is to be known what has changed since the last time.
    resumable: bool = False

    @property
    def asks_for_ranks(self) -> bool:
        """Whether a question is answered from other runs of the batch."""
        return any(question.startswith("ranks:") for question in self.questions)

    def of(self, count: int) -> Settings:
        """The same for so many runs; one alone is reported in full, and neither tracked nor held
        against what is there.
        """
        many = count > 1
        return replace(
            self,
            many=many,
            resumable=many and self.output == "files",
            markdown=self.markdown and not many,
        )

    @property
    def told(self) -> tuple[object, ...]:
        """All that reports depend on besides their runs."""
        return (
            self.report.version,
            sorted(self.formats),
            self.read_as,
            self.bandwidth,
            self.questions,
            self.conditions,
            self.anonymous,
            self.afterwards is not None,
        )
