"""The contract of a source: a place that has files, and what is known of each of them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stallscope.errors import NotFoundError, UnreadableError

#: Bytes of a file from a position to another one (None: its end).
Reads = Callable[[int, "int | None"], bytes]


@dataclass(frozen=True)
class SourceFile:
    """A file at a source."""

    #: Relative to what the user named, with ``/`` between folders. From outside: not to be trusted.
    name: str
    #: For messages, without credentials.
    where: str
    size: int
    #: Changes when the file does: an ETag, or the time of its last change; empty where not known.
    version: str
    reads: Reads

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """Its bytes, all of them unless said.

        Raises:
            NotFoundError: if it has gone.
            UnreadableError: if the place does not give them.
        """
        try:
            return bytes(self.reads(start, end))
        except (NotFoundError, UnreadableError):
            raise
        except FileNotFoundError as error:
            raise NotFoundError(f"{self.where}: the file has gone") from error
        except Exception as error:
            raise UnreadableError(f"{self.where}: cannot be read: {reason(error)}") from error


# What the recorder writes beside its logs, and what people write about them.
_BESIDE_LOGS = re.compile(r"run(-\d+)?\.json|README(\.\w+)?|.+\.upload\.log|\..+\.unfinished")
# Folders that a cluster's machines write to during a report, as ``mkdtemp`` ends names.
_SCRATCH = re.compile(r"(.*/)?\.stallscope-spark-[a-z0-9_]{8}/")


def lies_beside_logs(name: str) -> bool:
    """Whether a file of this name is no log, and is meant to lie beside logs."""
    return (
        _BESIDE_LOGS.fullmatch(name.rpartition("/")[2]) is not None
        or _SCRATCH.match(name) is not None
    )


def bytes_of(path: Path, size: int, start: int, end: int | None) -> bytes:
    """A part of a local file, of which only ``size`` bytes count."""
    with path.open("rb") as file:
        file.seek(start)
        return file.read((size if end is None else min(end, size)) - start)


class Source(ABC):
    """One place that a user named. A new kind of place is one file with one subclass, listed in
    ``registry.py``.
    """

    #: What the user typed, without credentials: for messages, manifests and the catalogue.
    where: str
    #: Whether reading it is as cheap as reading a copy: then none is made.
    local: bool = False
    #: Whether its files can be sent to other machines, which open the place themselves to read them.
    travels: bool = False

    @abstractmethod
    def files(self) -> list[SourceFile]:
        """All files at the place, by name.

        Raises:
            NotFoundError: if there is nothing.
            UnreadableError: if it cannot be reached.
        """


def reason(error: BaseException) -> str:
    """Return the first line of another library's error."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
