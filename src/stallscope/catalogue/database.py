"""Keep the catalogue's rows in SQLite; replace the file if it is damaged, or work in memory.

Stores may be on network file systems, so the journal is SQLite's classic one: the newer one, WAL, needs
shared memory between processes, which different hosts do not have. Every change is one short
transaction, and processes wait for the lock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from stallscope.conditions.language import fold
from stallscope.errors import UnknownVersionError, UnreadableError, UnwritableError

from .entry import SHARES, AnalysisSummary, Entry

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
_LOCK = ".catalogue.lock"
# Identifies the program in the header of the file.
_APPLICATION = 0x53746C53
_PATIENCE_SECONDS = 60.0
# With the statements of this program, only a modified table causes SQLITE_ERROR.
_DAMAGE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}

#: Changes with the columns, and with the definition of a job.
SCHEMA_VERSION = 6
#: Columns with their types. ``where.py`` has the fields of filters.
COLUMNS = {
    "folder": "TEXT PRIMARY KEY",
    "id": "TEXT NOT NULL",
    "name": "TEXT NOT NULL",
    "source": "TEXT NOT NULL",
    "framework": "TEXT",
    "model": "TEXT",
    "ranks": "INTEGER NOT NULL",
    "hosts": "INTEGER NOT NULL",
    "host": "TEXT NOT NULL",
    "batch_size": "INTEGER",
    "synthetic": "INTEGER NOT NULL",
    "status": "TEXT NOT NULL",
    "started_at": "TEXT",
    "collected_at": "TEXT",
    "bytes": "INTEGER NOT NULL",
    "facts": "TEXT NOT NULL",
    "job": "TEXT NOT NULL",
    "steps": "INTEGER",
    "epochs": "INTEGER",
    "samples_per_second": "REAL",
    "step_ms": "REAL",
    "verdict": "TEXT",
    "cause": "TEXT",
    "fault": "INTEGER",
    "fault_as_baseline": "INTEGER",
    "goodput": "REAL",
    "named_ranks": "TEXT NOT NULL",
    "named_hosts": "TEXT NOT NULL",
    **dict.fromkeys(SHARES, "REAL"),
    "manifest": "TEXT NOT NULL",
}
# Unquoted, because SQLite takes an unknown quoted name for a string.
SELECT_LIST = ", ".join(COLUMNS)
SCHEMA = (
    "DROP TABLE IF EXISTS runs",
    f"CREATE TABLE runs ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})",
    "CREATE INDEX runs_by_id ON runs (id)",
    "CREATE INDEX runs_by_job ON runs (job, synthetic, ranks)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


class Database:
    """The SQLite file, in any state. For one thread.

    Args:
        path: the path of the file, which may not exist yet.
        fill: fills a new file; called when a damaged file was replaced during an operation.
    """

    def __init__(self, path: Path, fill: Callable[[], None]) -> None:
        self._path = path
        self._fill = fill
        self._rebuilt = False
        #: The inode of the open file; None for a database in memory.
        self._inode: int | None = None
        self._memory_reason = ""
        self._connection = self._connect()

    def close(self) -> None:
        self._connection.close()

    def read(self, work: Work[T]) -> T:
        """Run a function that only reads.

        Raises:
            UnreadableError: if the file cannot be read.
        """
        try:
            return work(self._connection)
        except (sqlite3.Error, ValueError, TypeError) as error:
            if not self._rebuild_after(error):
                raise UnreadableError(
                    f"{self._path}: cannot be read: {_describe(error)}"
                ) from error
        return self.read(work)

    def write(self, work: Work[T], *, persistent: bool = True) -> T:
        """Run a function as one transaction, waiting for other writers.

        Args:
            work: the function.
            persistent: whether the change must be in the file; otherwise memory is enough.

        Raises:
            UnwritableError: if the file cannot be written.
        """
        if persistent and self._inode is None:
            raise UnwritableError(self._unwritable_message(self._memory_reason))
        if self._inode is not None and self._inode != _inode_of(self._path):
            # The open file was moved or removed, so writing to it would have no effect.
            self._reconnect()
        try:
            with _transaction(self._connection):
                return work(self._connection)
        except sqlite3.Error as error:
            if not self._rebuild_after(error):
                raise UnwritableError(self._unwritable_message(_describe(error))) from error
        return self.write(work, persistent=persistent)

    def move_to_memory(self) -> None:
        """Continue with a copy in memory."""
        copy = _in_memory()
        self._connection.backup(copy)
        self._connection.close()
        self._connection, self._inode = copy, None

    def _connect(self) -> sqlite3.Connection:
        inode = _inode_of(self._path)
        try:
            return self._open()
        except sqlite3.Error as error:
            self._memory_reason = _describe(error)
            if _is_damage(error) and self._move_aside(inode):
                with suppress(sqlite3.Error):
                    return self._open()
        # Runs can still be listed if the file cannot be written.
        self._inode = None
        memory = _in_memory()
        _prepare(memory, self._path)
        return memory

    def _open(self) -> sqlite3.Connection:
        connection = _open_connection(self._path)
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

    def _rebuild_after(self, error: Exception) -> bool:
        """Replace a damaged file, once; return whether that was done."""
        if self._rebuilt or not _is_damage(error):
            return False
        self._rebuilt = True
        self._connection.close()
        if self._inode is not None:
            self._move_aside(self._inode)
        self._connection = self._connect()
        self._fill()
        return True

    def _move_aside(self, inode: int | None) -> bool:
        """Move a damaged file away, unless another process has; return whether it is gone."""
        # Most commands write nothing.
        from filelock import FileLock

        try:
            with FileLock(self._path.with_name(_LOCK)):
                if inode is not None and _inode_of(self._path) == inode:
                    self._path.replace(self._path.with_suffix(".damaged"))
                    self._path.with_name(f"{self._path.name}-journal").unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def _unwritable_message(self, reason: str) -> str:
        return f"{self._path}: the catalogue cannot be written: {reason}; the runs are unchanged"


def _open_connection(place: str | Path) -> sqlite3.Connection:
    connection = sqlite3.connect(place, timeout=_PATIENCE_SECONDS, isolation_level=None)
    connection.create_function("fold", 1, fold, deterministic=True)  # for filters
    return connection


def _in_memory() -> sqlite3.Connection:
    return _open_connection(":memory:")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables if they are missing or of an older version.

    Raises:
        UnknownVersionError: if a newer Stallscope has created them.
        UnreadableError: if another program has created the database.
    """
    # In one transaction, because another process may create the tables between two reads.
    with _transaction(connection, "DEFERRED"):
        version = _version(connection, path)
    if version == SCHEMA_VERSION:
        return
    connection.execute("PRAGMA journal_mode = DELETE")
    with _transaction(connection):
        # Another process may have created the tables meanwhile.
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
            f"{path}: this is a database of another program, not a catalogue of runs; move it away"
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
    """Return whether an error means that the file is damaged."""
    if not isinstance(error, sqlite3.Error):
        return True  # unexpected values in a row
    code = getattr(error, "sqlite_errorcode", None)
    # Errors without a code come from Python's module, which cannot decode a value.
    return code is None or code & 0xFF in _DAMAGE_CODES


def _describe(error: Exception) -> str:
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF == sqlite3.SQLITE_BUSY:
        return f"another program has locked it for {_PATIENCE_SECONDS:.0f} s"
    return str(error)


def _inode_of(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


# -- Convert entries to rows of the table and back ------------------------------------------------


def row_of(entry: Entry) -> tuple[Any, ...]:
    known = {**vars(entry), **vars(entry.summary), **entry.summary.shares}
    known |= {"hosts": len(entry.hosts), "host": entry.hosts}
    for name in ("host", "facts", "named_ranks", "named_hosts"):
        # Filters search host names; facts may have characters that cannot be encoded.
        known[name] = json.dumps(known[name], ensure_ascii=name == "facts")
    return tuple(map(known.get, COLUMNS))


def entry_of(row: Sequence[Any]) -> Entry:
    """Return the entry of a row.

    Raises:
        ValueError, TypeError: if the row is malformed.
    """
    known = list(row)
    for at, read in _READ:
        known[at] = read(known[at])
    shares = zip(SHARES, _shares_of(known), strict=True)
    known.append({name: value for name, value in shares if value is not None})
    known.append(AnalysisSummary(*_summary_of(known)))
    return Entry(*_entry_of(known))


def _bool(value: int | None) -> bool | None:
    return None if value is None else bool(value)


# Runs of one job on the same hosts share these texts, so cache their parsed values.
@lru_cache(4096)
def _facts(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


@lru_cache(4096)
def _items(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


_PLACES = {name: at for at, name in enumerate([*COLUMNS, "shares", "summary"])}


_PLACES["hosts"] = _PLACES["host"]  # the names, not their number


_READ: tuple[tuple[int, Callable[[Any], Any]], ...] = (
    *((_PLACES[name], _bool) for name in ("synthetic", "fault", "fault_as_baseline")),
    *((_PLACES[name], _items) for name in ("host", "named_ranks", "named_hosts")),
    (_PLACES["facts"], _facts),
)


_entry_of = itemgetter(*(_PLACES[field.name] for field in fields(Entry)))


_summary_of = itemgetter(*(_PLACES[field.name] for field in fields(AnalysisSummary)))


_shares_of = itemgetter(*(_PLACES[name] for name in SHARES))
