"""The contract of an export."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO, ClassVar

from .worlds import Worlds


class Export(ABC):
    """Writes a run in one format. A new format is one file with one subclass, listed in
    ``registry.py``.
    """

    #: The name for ``--format``.
    name: ClassVar[str]
    #: Whether the file may be compressed as a whole: those that compress themselves gain nothing.
    may_be_gzipped: ClassVar[bool]

    def check(self) -> None:  # noqa: B027
        """See that everything is installed that writing needs.

        Raises:
            MissingExtraError: if something is not.
        """

    @abstractmethod
    def write(self, worlds: Worlds, file: BinaryIO) -> None:
        """Write the run piece by piece, so that long runs need little more memory than short ones."""
