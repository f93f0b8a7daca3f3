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
    #: Whether the file may be gzipped: formats with their own compression gain nothing.
    may_be_gzipped: ClassVar[bool]

    def check(self) -> None:  # noqa: B027
        """Check that everything that writing needs is installed.

        Raises:
            MissingExtraError: if something is not.
        """

    @abstractmethod
    def write(self, worlds: Worlds, file: BinaryIO) -> None:
        """Write the run piece by piece, so that long runs need little more memory than short ones."""
