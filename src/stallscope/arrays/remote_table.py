"""Define tables of steps that stay on a cluster, which runs kernels on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .pivot import Pivoted
    from .types import Ints

T = TypeVar("T")


class RemoteTable(ABC):
    """Replaces ``Run.steps`` if no row should be copied to this process."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def of_generation(self, generation: int) -> RemoteTable:
        """Return the rows of one generation."""

    @abstractmethod
    def as_run_of_generation(self, generation: int, numbers: Ints) -> RemoteTable:
        """Return the rows of one generation, as the table of a run with only that generation's logs.

        Args:
            generation: the generation.
            numbers: per log its new number; -1 for logs of other generations.
        """

    @abstractmethod
    def without_logs(self, logs: Sequence[int]) -> RemoteTable:
        """Return the rows that are not of these logs."""

    @abstractmethod
    def by_parts(self, columns: Sequence[str], kernel: Callable[..., T], *args: Any) -> list[T]:
        """Run a kernel on parts of the table, each with at least one row, and return its results.

        Args:
            columns: the columns that the kernel needs.
            kernel: a module-level function of a part and ``args``.
        """

    @abstractmethod
    def pivot(self, names: Sequence[str], sessions: Ints | None) -> Pivoted:
        """Pivot some columns of the steps."""
