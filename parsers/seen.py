"""What a look at logs has found: files, and the runs that they make up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sure = Literal["certain", "likely", "told"]


@dataclass(frozen=True)
class Span:
    """From when to when, as ISO 8601; without a zone if lines have none."""

    begin: str
    end: str
    zone_known: bool


@dataclass(frozen=True)
class FileSeen:
    """One file. What is not known is None."""

    path: str
    bytes: int
    #: The parser's name; None for what no parser reads.
    format: str | None
    title: str
    sure: Sure | None
    #: Whose labels stand before its lines.
    launcher: str | None = None
    ranks: tuple[int, ...] = ()
    steps: int | None = None
    epochs: int | None = None
    span: Span | None = None
    precision: str | None = None
    torn_lines: int = 0
    #: Whether its times are used in a run.
    used: bool = False
    #: What was skipped and why, and what else is to be known.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunSeen:
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
class Seen:
    """What is at the places that were named."""

    files: tuple[FileSeen, ...]
    runs: tuple[RunSeen, ...]
    #: What is wrong with all of it together.
    warnings: tuple[str, ...]
