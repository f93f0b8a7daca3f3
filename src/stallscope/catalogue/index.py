"""List the runs of a store.

The folders of a store determine its runs. Opening the catalogue lists the store once, removes rows
without a folder, and reads the manifests of folders without a row. So a missing, older or damaged
catalogue is treated as an empty one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stallscope.collector.run_names import NamedRun, index_of
from stallscope.collector.store.layout import CATALOGUE, MANIFEST, where_is
from stallscope.collector.store.manifests import (
    closed_folder_problem,
    is_collected,
    is_regular_file,
    may_be_entered,
)
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError, UnwritableError

from . import entry as catalogue_entry
from .database import COLUMNS, SELECT_LIST, Database, entry_of, row_of
from .entry import Entry
from .where import Filter, order_of

_ALL = Filter()
_INSERT = f"INTO runs ({SELECT_LIST}) VALUES ({', '.join('?' * len(COLUMNS))})"


class Catalogue:
    """The runs of a store. For one thread; close it, or use it as a context manager."""

    def __init__(self, store: Path) -> None:
        self._store = store
        #: Error messages of runs that cannot be listed.
        self.problems: tuple[str, ...] = ()
        self._database = Database(store / CATALOGUE, self.follow)

    @classmethod
    def open(cls, store: Path, *, follow: bool = True) -> Catalogue:
        """Open the catalogue of a store; update it from the folders if ``follow`` is true.

        Raises:
            NotFoundError: if no such folder.
            UnknownVersionError: if a newer Stallscope has written the catalogue.
            UnreadableError: if the file is not a catalogue.
        """
        if not store.is_dir():
            raise NotFoundError(f"{store}: no such folder")
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

    def __exit__(self, *_error: object) -> None:
        self.close()

    def add(self, entry: Entry) -> None:
        """Add a run, or replace the row of the same folder.

        Raises:
            UnwritableError: if the store cannot be written. The run is unchanged; the next process that
                opens the catalogue lists it without its verdict.
        """
        try:
            entry.write_summary(self.folder_of(entry))
        except FileNotFoundError:
            pass  # another collector is replacing the run, and will add its own entry
        except OSError as error:
            raise UnwritableError(
                f"{self.folder_of(entry)}: cannot be written: {error.strerror}"
            ) from error
        self._database.write(
            lambda rows: rows.execute(f"INSERT OR REPLACE {_INSERT}", row_of(entry))
        )

    def remove(self, run_id: str, folder: str | None = None) -> int:
        """Remove the rows of a run, in all folders or in one; return their number.

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
        """Return the runs that a filter finds, by default the newest first.

        Raises:
            UsageError: if the order names an unknown field.
            UnreadableError: if the catalogue cannot be read.
        """
        clause, values = where.clause()
        return self._select(
            f"{clause} ORDER BY {order_of(order, reverse)} LIMIT ?",
            [*values, -1 if limit is None else limit],
        )

    def count(self, where: Filter = _ALL) -> int:
        """Count the runs that a filter finds."""
        clause, values = where.clause()
        statement = f"SELECT count(*) FROM runs {clause}"
        return self._database.read(lambda rows: int(rows.execute(statement, values).fetchone()[0]))

    def find(self, run_id: str) -> Entry | None:
        """Return the last collected run with this id; None if there is none."""
        return next(iter(self.find_all(run_id)), None)

    def find_all(self, run_id: str) -> list[Entry]:
        """Return all runs with this id, the last collected first.

        A user may give the same id to two jobs; they are two runs in two folders.
        """
        return self._select("WHERE id = ? ORDER BY collected_at DESC, folder", (run_id,))

    def choose(self, wanted: str) -> list[Entry]:
        """Return the run that a user names by its id, its name, or the start of one; see ``find_all``.

        Raises:
            NotFoundError: if it is none of them, or may be several.
        """
        entries = self.find_all(wanted)
        if entries:
            return entries
        statement = "SELECT id, name FROM runs ORDER BY collected_at DESC, folder"
        runs = self._database.read(lambda rows: [NamedRun(*row) for row in rows.execute(statement)])
        return self.find_all(runs[index_of(wanted, runs, where_is(self._store))].id)

    def same_job(self, job: str, synthetic: bool, ranks: int | None = None) -> list[Entry]:
        """Return the runs of a job, on this number of ranks or any, the newest first."""
        clause = "WHERE job = ? AND synthetic = ? AND ranks = coalesce(?, ranks)"
        return self._select(f"{clause} ORDER BY {order_of('age')}", (job, synthetic, ranks))

    def folder_of(self, entry: Entry) -> Path:
        """Return the folder of a run."""
        return self._store / entry.folder

    def follow(self) -> None:
        """Update the catalogue from the store's folders.

        Raises:
            UnreadableError: if the store or the catalogue cannot be read.
        """
        existing = folders_of(self._store)
        known = self.folders()
        new, self.problems = _read_all(self._store / name for name in sorted(existing - known))
        removed = known - existing
        if not new and not removed:
            return
        try:
            self._apply(new, removed)
        except UnwritableError:
            # Runs of a read-only store can be listed, too.
            self._database.move_to_memory()
            self._apply(new, removed, persistent=False)

    def folders(self) -> set[str]:
        """Return the folders of all listed runs."""
        return self._database.read(
            lambda rows: {str(folder) for (folder,) in rows.execute("SELECT folder FROM runs")}
        )

    def _apply(
        self, new: Iterable[Entry], removed: Iterable[str], *, persistent: bool = True
    ) -> None:
        rows_of_new = [row_of(entry) for entry in new]

        def change(rows: sqlite3.Connection) -> None:
            # A collector's row has more, so keep it.
            rows.executemany(f"INSERT OR IGNORE {_INSERT}", rows_of_new)
            for name in removed:
                # A collector that replaces a run briefly moves its folder.
                if not (self._store / name).is_dir():
                    rows.execute("DELETE FROM runs WHERE folder = ?", (name,))

        self._database.write(change, persistent=persistent)

    def _select(self, clause: str, parameters: Sequence[Any]) -> list[Entry]:
        statement = f"SELECT {SELECT_LIST} FROM runs {clause}"
        return self._database.read(
            lambda rows: [entry_of(row) for row in rows.execute(statement, parameters)]
        )


def folders_of(store: Path) -> set[str]:
    """Return the folders of a store that may be runs: all except hidden ones.

    Raises:
        UnreadableError: if the store cannot be listed.
    """
    try:
        with os.scandir(store) as items:
            return {item.name for item in items if _may_be_a_run(item)}
    except OSError as error:
        raise UnreadableError(f"{store}: cannot be read: {error.strerror}") from error


def _may_be_a_run(item: os.DirEntry[str]) -> bool:
    # Stallscope does not create names that are not valid text, and they cannot be printed.
    return item.name[0] != "." and catalogue_entry.text(item.name) == item.name and item.is_dir()


def is_store(folder: Path) -> bool:
    """Return whether runs have been collected into a folder."""
    if is_regular_file(folder / CATALOGUE):
        return True
    return folder.is_dir() and any(is_collected(folder / name) for name in folders_of(folder))


def _read_all(folders: Iterable[Path]) -> tuple[list[Entry], tuple[str, ...]]:
    """Read the entries of collected runs; also return the errors of unreadable ones."""
    entries = []
    problems = []
    for folder in folders:
        # In a store, a manifest that another program wrote is a problem to name.
        if not is_regular_file(folder / MANIFEST):
            if not may_be_entered(folder):
                problems.append(closed_folder_problem(folder))
            continue
        try:
            entries.append(Entry.read(folder))
        except StallscopeError as error:
            problems.append(str(error))
    return entries, tuple(problems)
