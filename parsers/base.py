"""The contract of a parser, and what it is given and gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from stallscope.run import Log, Problem, Series


@dataclass(frozen=True)
class Parsed:
    """What one file held: its log, steps and intervals (without the ``log`` column), and problems.

    ``more`` are further logs in the same file: of other ranks, or of a further fit. ``series`` is what
    the file tells of machines, ``series_problems`` what is missing of that: both count whatever becomes
    of the log.
    """

    log: Log
    run_id: str
    steps: pa.Table
    intervals: pa.Table
    problems: tuple[Problem, ...] = field(default=())
    more: tuple[Parsed, ...] = field(default=())
    series: tuple[Series, ...] = field(default=())
    series_problems: tuple[Problem, ...] = field(default=())

    @property
    def rows(self) -> int:
        """How many steps it held."""
        return int(self.steps.num_rows)


class Parser(ABC):
    """Reads one kind of log. A new kind is one file with one subclass, listed in ``registry.py``.

    A user's own is named by where it is imported from: ``--read-as mypackage.module:Class``.
    """

    #: The name for ``--read-as``.
    name: ClassVar[str]
    #: What it reads, in a few words.
    title: ClassVar[str]
    #: How its files' names end, for messages.
    suffix: ClassVar[str]
    #: Whether its logs have steps; those that know epochs only count where there are no steps.
    has_steps: ClassVar[bool] = True
    #: Whether the first bytes of its files are like no other's; otherwise they only look like it.
    certain: ClassVar[bool] = True

    @abstractmethod
    def recognises(self, file_name: str, head: bytes) -> bool:
        """Whether a file of this name that begins with these bytes is of this kind."""

    @abstractmethod
    def parse(self, path: str, data: bytes) -> Parsed:
        """Read one file.

        Raises:
            UnreadableError: where nothing in it can be read as this kind of log.
        """
