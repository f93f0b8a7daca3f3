"""The settings of a batch, which every process of it receives."""

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
    """Settings for reading, analysing and reporting runs."""

    output: Output
    report: ReportOptions
    #: A temporary folder of this batch, for copies of remote runs and documents to print.
    scratch: Path
    out: Path
    formats: tuple[str, ...] = ()
    read_as: str | None = None
    #: Bus bandwidth of the network, GB/s.
    bandwidth: float | None = None
    #: The values of ``--what-if``.
    questions: tuple[str, ...] = ()
    #: The values of ``--fail-if``.
    conditions: tuple[str, ...] = ()
    anonymous: bool = False
    #: Whether to render single reports as Markdown, too.
    markdown: bool = False
    #: Called with every analysis and its run's source; returns a message.
    afterwards: Callable[[Analysis, str], str] | None = None
    #: Whether there are several runs: then no run stays in memory between the passes.
    many: bool = False
    #: Whether to only redo reports that have changed since the last time.
    resumable: bool = False

    @property
    def asks_for_ranks(self) -> bool:
        """Whether a question needs other runs of the batch."""
        return any(question.startswith("ranks:") for question in self.questions)

    def of(self, count: int) -> Settings:
        """Return the settings for this many runs; a single run is always reported in full."""
        many = count > 1
        return replace(
            self,
            many=many,
            resumable=many and self.output == "files",
            markdown=self.markdown and not many,
        )

    @property
    def report_inputs(self) -> tuple[object, ...]:
        """Return all inputs of reports other than their runs."""
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
