"""Read the runs at a place repeatedly; of growing step logs, only the new rows."""

from __future__ import annotations

from pathlib import Path

from stallscope.collector.address import where_is
from stallscope.collector.registry import open_source
from stallscope.collector.sources.base import Source
from stallscope.collector.store.folders import collected_folder, collected_runs, is_collected
from stallscope.collector.store.loading import RunOnDisk
from stallscope.collector.store.mirror import Mirror
from stallscope.opening import choose_run, local_source
from stallscope.parsers import read
from stallscope.parsers.growing import Growing
from stallscope.run import Run

# Enough to find the logs that belong together.
_STEPS_HELD = 500


class Place:
    """The place of a RUN argument.

    Args:
        source: the argument.
        read_as: the name of a parser for every file.
        mirrors: the folder for mirrors of stores at URLs; it must exist while the place is read.
        whole: whether all steps are needed; otherwise old ones are dropped, so that looking at a long
            run is as fast as at a short one.
    """

    def __init__(self, source: str, read_as: str | None, mirrors: Path, *, whole: bool) -> None:
        self._place, _, self._run_id = local_source(source, mirrors).partition("#")
        self._read_as = read_as
        self._source: Source | None = None
        self._growing = Growing(None if whole else _STEPS_HELD)
        self._ended_before: set[Path] | None = None
        path = Path(self._place)
        self.where = where_is(path) if self._is_stored(path) else open_source(self._place).where

    def look(self) -> list[Run]:
        """Read new rows; return the place's newest run, or all runs of a store.

        Of a whole store, runs that had completed at the first look are left out.

        Raises:
            StallscopeError: if nothing is there, or it cannot be read.
        """
        path = Path(self._place)
        if self._is_stored(path):
            return self._stored(path)
        if self._source is None:
            self._source = open_source(self._place)
        found = read(self._source, read_as=self._read_as, reads=self._growing)
        return [choose_run(self.where, self._run_id, found)]

    def _is_stored(self, path: Path) -> bool:
        return is_collected(path) or (path.is_dir() and bool(collected_runs(path)))

    def _stored(self, path: Path) -> list[Run]:
        mirror = Mirror.of(path) or Mirror.of(path.parent)
        if mirror is not None:
            mirror.update_all()
        if is_collected(path):
            return [RunOnDisk.open(path)]
        folders = collected_runs(path)
        if self._run_id:
            return [RunOnDisk.open(collected_folder(path, self._run_id))]
        before = self._ended_before or set()
        opened = {folder: RunOnDisk.open(folder) for folder in folders if folder not in before}
        if self._ended_before is None:
            self._ended_before = {
                folder for folder, run in opened.items() if run.status == "completed"
            }
        return [run for folder, run in opened.items() if folder not in self._ended_before]
