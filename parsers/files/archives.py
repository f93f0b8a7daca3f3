"""Read the files in archives of logs (tar, compressed tar and zip) as if these were folders.

A member of ``logs.tar.gz`` is the file ``logs.tar.gz/rank.0/stdout``. Nothing is written to disk, and
names of members never become paths. A compressed tar is unpacked from its start to a member; as members
are read in the archive's order, one pass is enough.
"""

from __future__ import annotations

import io
import re
import stat
import tarfile
import threading
import zipfile
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from stallscope.collector.sources.source import SourceFile, reason
from stallscope.errors import StallscopeError, UnreadableError

from ..lines.timestamps import LATEST_SECOND
from . import archive_kind
from .unpacking import TRUNCATED, is_packed, most_unpacked, opened, readable_within_limits, too_much

# No job has more logs, and listing more takes long.
_MOST_MEMBERS = 100_000
# Descriptions of a member are short.
_MOST_HEADER_BYTES = 1 << 20
_PIECE = 1 << 20
# Reproducible archives have files of 1970 or 1980.
_EARLIEST_S = 631_152_000
# Members of compressed archives that are kept while others are read.
_MOST_HELD_BYTES = 64 << 20
# A larger archive at another place is fetched first.
_MOST_REMOTE_BYTES = 1 << 30
_ENCRYPTED = 1
_HEAD_BYTES = 16
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SLASHES = re.compile(r"[/\\]")
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError)
# Python's readers raise these at the start of a file that is not an archive.
_NO_ARCHIVE = (tarfile.ReadError, zipfile.BadZipFile)
# zipfile raises these for unknown compression, and for encrypted members.
_UNSUPPORTED = (NotImplementedError, RuntimeError)


def members_of(file: SourceFile, *, local: bool) -> list[SourceFile]:
    """Return the files in an archive, and the archive itself if not all of them could be listed.

    Args:
        file: the archive; its name ends as an archive's.
        local: whether reading parts of it is cheap.
    """
    files: dict[str, SourceFile] = {}
    try:
        archive = _opened(file if local else _fetched(file))
        for number, member in enumerate(archive.members()):
            if number >= _MOST_MEMBERS:
                raise UnreadableError(f"has more than {_MOST_MEMBERS:,} files; unpack it")
            safe_member = _named_safely(member)
            # A later member of the same name replaces the one before.
            files.pop(safe_member.name, None)
            files[safe_member.name] = SourceFile(
                f"{file.name}/{safe_member.name}",
                f"{file.where}/{safe_member.name}",
                safe_member.size,
                file.version,
                partial(archive.read, safe_member),
                safe_member.modified_ns
                if safe_member.modified_ns is not None
                else file.modified_ns,
            )
    except (StallscopeError, *_DAMAGE, *_UNSUPPORTED) as error:
        why = reason(error).removeprefix(f"{file.where}: ")
        if not files and isinstance(error, _NO_ARCHIVE):
            why = f"this is not a readable {archive_kind(file.name)} archive"
        what = f"{file.where}: {why}"
        return [*files.values(), replace(file, read_range=partial(_unreadable, what))]
    return [*files.values()]


class Member(NamedTuple):
    """A file in an archive."""

    #: A relative path that stays within the archive.
    name: str
    size: int
    #: Where its bytes are in an unpacked tar; its place in the list of a zip.
    at: int
    #: Why it cannot be read; None if it can.
    problem: str | None = None
    #: When it was last changed, nanoseconds since 1970; None if unknown.
    modified_ns: int | None = None


class _Archive(ABC):
    """An archive; members are read one at a time, by any thread."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # Another machine opens the archive again.
        return {"file": self.file}

    def __setstate__(self, state: dict[str, Any]) -> None:
        type(self).__init__(self, state["file"])

    @abstractmethod
    def members(self) -> Iterator[Member]:
        """List its files.

        Raises:
            UnreadableError: if it is damaged, after the files before the damage.
        """

    def read(self, member: Member, start: int, end: int | None) -> bytes:
        """Read bytes of a member.

        Raises:
            UnreadableError: if they cannot be read.
        """
        where = f"{self.file.where}/{member.name}"
        if member.problem is not None:
            raise UnreadableError(f"{where}: {member.problem}")
        end = member.size if end is None else min(end, member.size)
        try:
            with self._lock:
                return self._bytes(member, start, max(start, end))
        except StallscopeError:
            raise
        except (*_DAMAGE, *_UNSUPPORTED) as error:
            raise UnreadableError(f"{where}: damaged in the archive: {reason(error)}") from error

    @abstractmethod
    def _bytes(self, member: Member, start: int, end: int) -> bytes: ...


class _Tar(_Archive):
    """An uncompressed tar: its members are parts of its bytes."""

    def members(self) -> Iterator[Member]:
        yield from _in_tar(opened(self.file, _PIECE))

    def _bytes(self, member: Member, start: int, end: int) -> bytes:
        data = self.file.read(member.at + start, min(member.at + end, self.file.size))
        if len(data) < end - start:
            raise UnreadableError(f"{self.file.where}/{member.name}: the archive is truncated")
        return data


class _PackedTar(_Archive):
    """A compressed tar, which is unpacked from its start to the end of each member."""

    def __init__(self, file: SourceFile) -> None:
        super().__init__(file)
        self._stream: _Forward | None = None
        self._members: list[Member] = []
        self._held: OrderedDict[int, bytes] = OrderedDict()
        self._held_bytes = 0

    def members(self) -> Iterator[Member]:
        stream = _Forward(self.file)
        for member in _in_tar(stream):
            self._members.append(member)
            yield member
        if stream.truncated:
            raise UnreadableError(f"{self.file.where}: {TRUNCATED}")

    def _bytes(self, member: Member, start: int, end: int) -> bytes:
        if member.at not in self._held:
            self._unpack(member)
        self._held.move_to_end(member.at)
        return self._held[member.at][start:end]

    def _unpack(self, member: Member) -> None:
        if self._stream is None or self._stream.tell() > member.at:
            self._stream = _Forward(self.file)
        # Threads request adjacent members in any order: keep those on the way.
        first = bisect_left(self._members, self._stream.tell(), key=attrgetter("at"))
        for earlier in self._members[first:]:
            if earlier.at >= member.at:
                break
            if earlier.size <= _PIECE:
                self._hold(earlier, self._stream)
        self._hold(member, self._stream)

    def _hold(self, member: Member, stream: _Forward) -> None:
        stream.seek(member.at)
        data = stream.read(member.size)
        if len(data) < member.size:
            raise UnreadableError(f"{self.file.where}/{member.name}: the archive is truncated")
        self._held_bytes += len(data) - len(self._held.pop(member.at, b""))
        self._held[member.at] = data
        while len(self._held) > 1 and self._held_bytes > _MOST_HELD_BYTES:
            self._held_bytes -= len(self._held.popitem(last=False)[1])


class _Zip(_Archive):
    def __init__(self, file: SourceFile) -> None:
        super().__init__(file)
        self._opened: zipfile.ZipFile | None = None

    def members(self) -> Iterator[Member]:
        most = most_unpacked(self.file.size)
        total = 0
        for at, info in enumerate(self._zip().infolist()):
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir() or kind not in (0, stat.S_IFREG):
                continue
            total += info.file_size
            problem = None
            if info.flag_bits & _ENCRYPTED:
                problem = "it is encrypted; unpack the archive"
            elif total > most:
                problem = too_much(most)
            yield Member(info.filename, info.file_size, at, problem, _zip_time(info))

    def _bytes(self, member: Member, start: int, end: int) -> bytes:
        archive = self._zip()
        with archive.open(archive.infolist()[member.at]) as file:
            file.seek(start)
            whole = io.BytesIO()
            while whole.tell() < end - start and (piece := file.read(_PIECE)):
                whole.write(piece)
            return whole.getvalue()[: end - start]

    def _zip(self) -> zipfile.ZipFile:
        if self._opened is None:
            self._opened = zipfile.ZipFile(opened(self.file, _PIECE))
        return self._opened


class _Forward:
    """The contents of a compressed file, which can only be read forwards."""

    def __init__(self, file: SourceFile) -> None:
        self._unpacked = readable_within_limits(file.where, opened(file, _PIECE), file.size)
        self._at = 0

    @property
    def truncated(self) -> bool:
        """Whether it is damaged so far."""
        return self._unpacked.truncated

    def tell(self) -> int:
        return self._at

    def read(self, size: int, /) -> bytes:
        """Read bytes, fewer only at the end."""
        data = self._unpacked.read(size)
        self._at += len(data)
        return data

    def seek(self, offset: int, /) -> int:
        """Go forward to a place."""
        while self._at < offset and self.read(min(offset - self._at, _PIECE)):
            pass
        return self._at


@dataclass
class _Headers:
    """A tar for ``tarfile``, which only reads the descriptions of members."""

    file: Any
    last: bytes = b""

    def tell(self) -> int:
        return int(self.file.tell())

    def seek(self, offset: int, /) -> int:
        return int(self.file.seek(offset))

    def read(self, size: int, /) -> bytes:
        if size > _MOST_HEADER_BYTES:
            raise tarfile.ReadError("a member's description is too long")
        self.last = bytes(self.file.read(size))
        return self.last


def _in_tar(file: Any) -> Iterator[Member]:
    """List the regular files in a tar: neither links nor devices.

    Raises:
        TarError: if it is damaged, or does not end with zeros.
    """
    headers = _Headers(file)
    # The type is a whole file object, but only these three methods are called.
    with tarfile.open(fileobj=headers, mode="r:") as tar:  # type: ignore[call-overload]
        while (info := tar.next()) is not None:
            # Otherwise it would keep the descriptions of all members.
            tar.members = []
            if info.isreg():
                problem = "it has holes; unpack the archive" if info.issparse() else None
                changed = _plausible(info.mtime)
                yield Member(info.name, info.size, info.offset_data, problem, changed)
    if headers.last.strip(b"\0"):
        raise tarfile.ReadError("damaged after its first files")


def _zip_time(info: zipfile.ZipInfo) -> int | None:
    """Return when a file was last changed: local time of an unknown zone, as if it were UTC."""
    try:
        return _plausible(datetime(*info.date_time, tzinfo=UTC).timestamp())
    except (ValueError, OverflowError):
        return None


def _plausible(seconds: float) -> int | None:
    """Return a time as nanoseconds; None for times that stand for an unknown one."""
    return int(seconds) * 10**9 if _EARLIEST_S <= seconds < LATEST_SECOND else None


def _named_safely(member: Member) -> Member:
    """Return a member with a printable name that does not lead out of the archive."""
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", member.name)
    parts = [part for part in _SLASHES.split(text) if part not in ("", ".", "..")]
    name = "/".join(parts) or "unnamed"
    if archive_kind(name):
        return member._replace(name=name, problem="it is an archive in an archive; unpack it")
    return member._replace(name=name)


def _opened(file: SourceFile) -> _Archive:
    if archive_kind(file.name) == "zip":
        return _Zip(file)
    return _PackedTar(file) if is_packed(file.read(0, _HEAD_BYTES)) else _Tar(file)


def _fetched(file: SourceFile) -> SourceFile:
    """Return a remote file that is held in memory from its first use."""
    if file.size > _MOST_REMOTE_BYTES:
        raise UnreadableError("a large archive at another place; collect it first")
    return replace(file, read_range=_Whole(file))


@dataclass
class _Whole:
    """The bytes of a remote file, in memory; another machine reads them again."""

    file: SourceFile
    data: bytes | None = None

    def __call__(self, start: int, end: int | None) -> bytes:
        if self.data is None:
            self.data = self.file.read()
        return self.data[start:end]

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file, "data": None}


def _unreadable(what: str, _start: int, _end: int | None) -> bytes:
    raise UnreadableError(what)
