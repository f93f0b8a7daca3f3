"""The runs of a store as a list.

What is in a store is decided by its folders. Opening the catalogue takes rows off whose folders have
gone and reads the manifests of folders without a row, with one listing of the store. So a catalogue
that is missing, older or damaged is an empty one that is brought up to date.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from stallscope.collector.store.layout import CATALOGUE, MANIFEST
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError, UnwritableError

from . import values
from .database import Database
from .entry import Entry
from .rows import COLUMNS, SELECTED, entry_of, row_of
from .where import Filter, order_of

_ALL = Filter()
_INSERT = f"INTO runs ({SELECTED}) VALUES ({', '.join('?' * len(COLUMNS))})"


class Catalogue:
    """The runs of a store. For one thread; to be closed, or used in a ``with`` statement."""

    def __init__(self, store: Path) -> None:
        self._store = store
        #: Runs that cannot be listed, each with why.
        self.problems: tuple[str, ...] = ()
        self._database = Database(store / CATALOGUE, self.follow)

    @classmethod
    def open(cls, store: Path, *, follow: bool = True) -> Catalogue:
        """The catalogue of a store, brought up to date with its folders unless said otherwise.

        Raises:
            NotFoundError: if there is no such folder.
            UnknownVersionError: if a newer Stallscope has written it.
            UnreadableError: if there is something else in its place.
        """
        if not store.is_dir():
            raise NotFoundError(f"{store}: there is no such folder")
        catalogue = cls(store)
        try:
            if follow:
                catalogue.follow()
        except BaseException:
            catalogue.close()
            raise
        return catalogue

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def add(self, entry: Entry) -> None:
        """List a run; a row of the same folder is replaced.

        Raises:
            UnwritableError: if the store does not take it. The run itself is untouched, and is listed
                without its verdict by the next one that opens the catalogue.
        """
        try:
            entry.write_summary(self.folder_of(entry))
        except FileNotFoundError:
            pass  # another collector is just replacing the run; its own entry comes
        except OSError as error:
            raise UnwritableError(
                f"{self.folder_of(entry)}: cannot be written: {error.strerror}"
            ) from error
        self._database.write(
            lambda rows: rows.execute(f"INSERT OR REPLACE {_INSERT}", row_of(entry))
        )

    def remove(self, run_id: str, folder: str | None = None) -> int:
        """Take a run off the list, in all of its folders unless one is named; how many rows went.

        Raises:
            UnwritableError: if the catalogue cannot be written.
        """
        return self._database.write(
            lambda rows: (
                rows.execute(
                    "DELETE FROM runs WHERE id = ? AND folder = coalesce(?, folder)",
                    (run_id, folder),
                ).rowcount
            )
        )

    def entries(
        self,
        where: Filter = _ALL,
        order: str = "age",
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[Entry]:
        """The runs that a filter finds: the newest first unless another order is asked for.

        Raises:
            UsageError: if there is no such field to order by.
            UnreadableError: if the catalogue cannot be read.
        """
        return self._select(
            f"{_clause_of(where)} ORDER BY {order_of(order, reverse)} LIMIT ?",
            (-1 if limit is None else limit,),
            where,
        )

    def count(self, where: Filter = _ALL) -> int:
        """How many runs a filter finds."""

        def counted(rows: sqlite3.Connection) -> int:
            _define(where, rows)
            (number,) = rows.execute(f"SELECT count(*) FROM runs {_clause_of(where)}").fetchone()
            return int(number)

        return self._database.read(counted)

    def find(self, run_id: str) -> Entry | None:
        """The run of that id that was collected last; None where there is none."""
        return next(iter(self.find_all(run_id)), None)

    def find_all(self, run_id: str) -> list[Entry]:
        """All runs of that id, the one that was collected last first.

        Ids come from the job: two jobs that were given the same one are two runs in two folders.
        """
        return self._select("WHERE id = ? ORDER BY collected_at DESC, folder", (run_id,))

    def same_job(self, job: str, synthetic: bool, ranks: int | None = None) -> list[Entry]:
        """Runs that do the same work, on so many ranks or any; the newest first."""
        clause = "WHERE job = ? AND synthetic = ? AND ranks = coalesce(?, ranks)"
        return self._select(f"{clause} ORDER BY {order_of('age')}", (job, synthetic, ranks))

    def folder_of(self, entry: Entry) -> Path:
        """Where a run is."""
        return self._store / entry.folder

    def follow(self) -> None:
        """Bring the list up to date with the store's folders.

        Raises:
            UnreadableError: if the store or the catalogue cannot be read.
        """
        there = folders_of(self._store)
        known = self.folders()
        new, self.problems = _read_all(self._store / name for name in sorted(there - known))
        gone = known - there
        if not new and not gone:
            return
        try:
            self._bring(new, gone)
        except UnwritableError:
            # A store that is only read has a list all the same.
            self._database.move_to_memory()
            self._bring(new, gone, kept=False)

    def folders(self) -> set[str]:
        """The folders of all runs that are listed."""
        return self._database.read(
            lambda rows: {str(folder) for (folder,) in rows.execute("SELECT folder FROM runs")}
        )

    def _bring(self, new: Iterable[Entry], gone: Iterable[str], *, kept: bool = True) -> None:
        rows_of_new = [row_of(entry) for entry in new]

        def change(rows: sqlite3.Connection) -> None:
            # The row of a collector that was quicker knows more.
            rows.executemany(f"INSERT OR IGNORE {_INSERT}", rows_of_new)
            for name in gone:
                # A collector that replaces a run takes its folder away for a moment.
                if not (self._store / name).is_dir():
                    rows.execute("DELETE FROM runs WHERE folder = ?", (name,))

        self._database.write(change, kept=kept)

    def _select(self, clause: str, parameters: Sequence[Any], where: Filter = _ALL) -> list[Entry]:
        statement = f"SELECT {SELECTED} FROM runs {clause}"

        def selected(rows: sqlite3.Connection) -> list[Entry]:
            _define(where, rows)
            return [entry_of(row) for row in rows.execute(statement, parameters)]

        return self._database.read(selected)


def _define(where: Filter, rows: sqlite3.Connection) -> None:
    """Let SQLite call the filter, so that only rows that it finds become entries."""
    rows.create_function("found", len(where.columns), where.finds_row)


def _clause_of(where: Filter) -> str:
    return "" if where.node is None else f"WHERE found({', '.join(where.columns)})"


def folders_of(store: Path) -> set[str]:
    """The folders of a store in which there may be runs: all but hidden ones.

    Raises:
        UnreadableError: if the store cannot be listed.
    """
    try:
        with os.scandir(store) as items:
            return {item.name for item in items if _may_be_a_run(item)}
    except OSError as error:
        raise UnreadableError(f"{store}: cannot be read: {error.strerror}") from error


def _may_be_a_run(item: os.DirEntry[str]) -> bool:
    # Names that are no text were not given by Stallscope, and no list can show them.
    return item.name[0] != "." and values.text(item.name) == item.name and item.is_dir()


def is_store(folder: Path) -> bool:
    """Whether runs have been collected into a folder."""
    if (folder / CATALOGUE).is_file():
        return True
    return folder.is_dir() and any(
        (folder / name / MANIFEST).is_file() for name in folders_of(folder)
    )


def _read_all(folders: Iterable[Path]) -> tuple[list[Entry], tuple[str, ...]]:
    """The entries of the collected runs among folders, and why some cannot be listed."""
    entries = []
    problems = []
    for folder in folders:
        if not (folder / MANIFEST).exists():
            continue
        try:
            entries.append(Entry.read(folder))
        except StallscopeError as error:
            problems.append(str(error))
    return entries, tuple(problems)
