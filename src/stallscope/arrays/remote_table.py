"""Tables of steps that are not in this process: questions are sent to where they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .pivot import SideBySide
    from .types import Ints

T = TypeVar("T")


class AwayTable(ABC):
    """What stands for ``Run.steps`` where no row of it is to come here."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """How many rows the run has."""

    @abstractmethod
    def of_generation(self, generation: int) -> AwayTable:
        """Only the rows of one generation."""

    @abstractmethod
    def without_logs(self, logs: Sequence[int]) -> AwayTable:
        """Not the rows of these logs."""

    @abstractmethod
    def by_parts(self, kernel: Callable[..., T], *args: Any) -> list[T]:
        """What a kernel finds in parts of the table, each of them log by log and with at least a row."""

    @abstractmethod
    def side_by_side(self, names: Sequence[str], sessions: Ints | None) -> SideBySide:
        """Some columns of the steps, rank by rank."""
