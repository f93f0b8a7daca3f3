"""The catalogue's SQLite file: opened, made, moved aside when it is damaged, or kept in memory.

Stores stand on network file systems, too, so the journal is SQLite's classic one: the newer one, WAL,
keeps an index in memory that processes on different hosts do not share. Every change is one short
transaction, and a process that finds the file locked waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from stallscope.errors import UnknownVersionError, UnreadableError, UnwritableError

from .rows import SCHEMA, SCHEMA_VERSION

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_LOCK = ".catalogue.lock"
# Says in the file's head whose database it is.
_APPLICATION = 0x53746C53
_PATIENCE_SECONDS = 60.0
# Of the statements that are sent here, only a table that was tampered with makes the last one.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}


class Database:
    """The file, whatever state it is in. For one thread.

    Args:
        path: where it is, or is to be.
        fill: called when it had to be started anew, in the middle of whatever was being done.
    """

    def __init__(self, path: Path, fill: Callable[[], None]) -> None:
        self._path = path
        self._fill = fill
        self._renewed = False
        #: Of the file that is open; None where the list is in memory.
        self._inode: int | None = None
        self._why_in_memory = ""
        self._connection = self._connect()

    def close(self) -> None:
        self._connection.close()

    def read(self, work: Work[T]) -> T:
        """Do something that changes nothing.

        Raises:
            UnreadableError: if the file cannot be read.
        """
        try:
            return work(self._connection)
        except (sqlite3.Error, ValueError, TypeError) as error:
            if not self._renew_after(error):
                raise UnreadableError(f"{self._path}: cannot be read: {_said(error)}") from error
        return self.read(work)

    def write(self, work: Work[T], *, kept: bool = True) -> T:
        """Do something as one transaction, waiting for others that are writing.

        Args:
            work: what is done.
            kept: whether it is to outlive this process; otherwise memory will do.

        Raises:
            UnwritableError: if the file, or the disk, does not take it.
        """
        if kept and self._inode is None:
            raise UnwritableError(self._unwritable(self._why_in_memory))
        if self._inode is not None and self._inode != _inode_of(self._path):
            # This one was moved aside or removed: what is written to it is lost.
            self._reconnect()
        try:
            with _transaction(self._connection):
                return work(self._connection)
        except sqlite3.Error as error:
            if not self._renew_after(error):
                raise UnwritableError(self._unwritable(_said(error))) from error
        return self.write(work, kept=kept)

    def move_to_memory(self) -> None:
        """Go on with a copy that is never written."""
        copy = _in_memory()
        self._connection.backup(copy)
        self._connection.close()
        self._connection, self._inode = copy, None

    def _connect(self) -> sqlite3.Connection:
        inode = _inode_of(self._path)
        try:
            return self._opened()
        except sqlite3.Error as error:
            self._why_in_memory = _said(error)
            if _is_damage(error) and self._set_aside(inode):
                with suppress(sqlite3.Error):
                    return self._opened()
        # Where nothing can be written, runs can still be listed.
        self._inode = None
        memory = _in_memory()
        _prepare(memory, self._path)
        return memory

    def _opened(self) -> sqlite3.Connection:
        connection = _connected(self._path)
        try:
            _prepare(connection, self._path)
            self._inode = _inode_of(self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def _reconnect(self) -> None:
        self._connection.close()
        self._connection = self._connect()

    def _renew_after(self, error: Exception) -> bool:
        """Start anew where that mends the error, once."""
        if self._renewed or not _is_damage(error):
            return False
        self._renewed = True
        self._connection.close()
        if self._inode is not None:
            self._set_aside(self._inode)
        self._connection = self._connect()
        self._fill()
        return True

    def _set_aside(self, inode: int | None) -> bool:
        """Make room for another file, unless another process has; return whether there is room."""
        try:
            with FileLock(self._path.with_name(_LOCK)):
                if inode is not None and _inode_of(self._path) == inode:
                    self._path.replace(self._path.with_suffix(".damaged"))
                    self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def _unwritable(self, why: str) -> str:
        return f"{self._path}: the catalogue cannot be written: {why}; the runs are as they were"


def _connected(place: str | Path) -> sqlite3.Connection:
    return sqlite3.connect(place, timeout=_PATIENCE_SECONDS, isolation_level=None)


def _in_memory() -> sqlite3.Connection:
    return _connected(":memory:")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables where they are missing, or of an older version.

    Raises:
        UnknownVersionError: if a newer Stallscope has made them.
        UnreadableError: if it is another program's database.
    """
    # At one moment: another process may make the tables between two looks.
    with _transaction(connection, "DEFERRED"):
        version = _version(connection, path)
    if version == SCHEMA_VERSION:
        return
    connection.execute("PRAGMA journal_mode = DELETE")
    with _transaction(connection):
        # Another process may have been quicker.
        if _version(connection, path) != SCHEMA_VERSION:
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            for statement in SCHEMA:
                connection.execute(statement)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != _APPLICATION and tables:
        raise UnreadableError(
            f"{path}: this is another program's database and not a catalogue of runs; move it away"
        )
    if version > SCHEMA_VERSION:
        raise UnknownVersionError(
            f"{path}: written by a newer Stallscope (version {version}, this one knows "
            f"{SCHEMA_VERSION}): upgrade it with pip install --upgrade stallscope"
        )
    return int(version)


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _is_damage(error: Exception) -> bool:
    """Whether an error says that the file is not what was written."""
    if not isinstance(error, sqlite3.Error):
        return True  # unexpected values in a row
    code = getattr(error, "sqlite_errorcode", None)
    # Without a code it is Python's module that cannot read what SQLite gave it.
    return code is None or code & 0xFF in _DAMAGED


def _said(error: Exception) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF == sqlite3.SQLITE_BUSY:
        return f"another program has kept it locked for {_PATIENCE_SECONDS:.0f} s"
    return str(error)


def _inode_of(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
