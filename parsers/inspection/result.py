"""The result of inspecting logs: files, and the runs that they make up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sure = Literal["certain", "likely", "told"]


@dataclass(frozen=True)
class TimeSpan:
    """A time span as ISO 8601; without a zone if the zone is unknown."""

    begin: str
    end: str
    zone_known: bool


@dataclass(frozen=True)
class Proposal:
    """A pattern for a file that no parser knows, with its results. Unknown values are None."""

    #: For ``--read-as``.
    read_as: str
    #: The number of matching lines, and the share of the lines for which the pattern was made.
    lines: int
    share: float
    ranks: tuple[int, ...]
    #: The first and the last one.
    epochs: tuple[int, int] | None
    steps: tuple[int, int] | None
    #: The mean step time over the ranks, and the possible error of each rank's.
    step_ms: float | None
    step_precision_ms: float | None
    #: The mean of all epochs with a known end.
    epoch_s: float | None
    span: TimeSpan | None
    #: What it leaves out or assumes.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class InspectedFile:
    """One file. Unknown values are None."""

    path: str
    bytes: int
    #: The format's name; None if it is unknown.
    format: str | None
    title: str
    sure: Sure | None
    #: The launcher that has labelled its lines.
    launcher: str | None = None
    ranks: tuple[int, ...] = ()
    steps: int | None = None
    epochs: int | None = None
    span: TimeSpan | None = None
    precision: str | None = None
    torn_lines: int = 0
    #: Whether its times are used in a run.
    used: bool = False
    #: Skipped parts, with the reasons, and other remarks.
    notes: tuple[str, ...] = ()
    #: A pattern that could read it, if no parser does.
    proposal: Proposal | None = None


@dataclass(frozen=True)
class InspectedRun:
    """One run that the files make up."""

    id: str
    name: str
    source: str
    #: The number of ranks that trained, and of those with a log.
    size: int
    ranks: int
    #: Whether logs have the number of ranks, and its source; None for the recorder's logs.
    size_known: bool
    size_from: str | None
    #: None if unknown.
    hosts: int | None
    steps: int | None
    epochs: int | None
    span: TimeSpan | None
    precision: str
    status: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Inspection:
    """All files and runs at a place."""

    files: tuple[InspectedFile, ...]
    runs: tuple[InspectedRun, ...]
    #: Problems of all files together.
    warnings: tuple[str, ...]
