"""The result of inspecting logs: files, and the runs that they make up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sure = Literal["certain", "likely", "told"]


@dataclass(frozen=True)
class Span:
    """A time span as ISO 8601; without a zone if the zone is unknown."""

    begin: str
    end: str
    zone_known: bool


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
    span: Span | None = None
    precision: str | None = None
    torn_lines: int = 0
    #: Whether its times are used in a run.
    used: bool = False
    #: What was skipped and why, and other remarks.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class InspectedRun:
    """One run that the files make up."""

    id: str
    name: str
    source: str
    #: Ranks that trained, and those that left a log.
    size: int
    ranks: int
    #: None if unknown.
    hosts: int | None
    steps: int | None
    epochs: int | None
    span: Span | None
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
