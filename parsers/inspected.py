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
    """A pattern for the lines of a file that no parser knows, with what it would read. Unknown values
    are None.
    """

    #: For ``--read-as``.
    read_as: str
    #: How many lines of the file match, and which share of the lines that the pattern was made of.
    lines: int
    share: float
    ranks: tuple[int, ...]
    #: The first and the last one.
    epochs: tuple[int, int] | None
    steps: tuple[int, int] | None
    #: A step's mean time over the ranks, and by how much each rank's may be wrong.
    step_ms: float | None
    step_precision_ms: float | None
    #: The mean of the epochs whose end is known.
    epoch_s: float | None
    span: TimeSpan | None
    #: What it leaves out or takes for granted.
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
    #: What was skipped and why, and other remarks.
    notes: tuple[str, ...] = ()
    #: How a pattern could read it, if no parser does.
    proposal: Proposal | None = None


@dataclass(frozen=True)
class InspectedRun:
    """One run that the files make up."""

    id: str
    name: str
    source: str
    #: Ranks that trained, and those that left a log.
    size: int
    ranks: int
    #: Whether logs say how many trained, and where from; None for the recorder's logs.
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
    #: What is wrong with all of it together.
    warnings: tuple[str, ...]
