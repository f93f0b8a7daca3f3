"""Read the runs at a place repeatedly; of growing step logs, only the new rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path

from stallscope.analysis.stopped.positions import OverduePosition
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources.source import Source
from stallscope.collector.store.layout import where_is
from stallscope.collector.store.loading import RunOnDisk
from stallscope.collector.store.manifests import collected_folder, collected_runs, is_collected
from stallscope.collector.store.mirror import Mirror
from stallscope.formatting.lists import joined
from stallscope.formatting.plain import plain
from stallscope.opening import local_address, named_runs, place_warnings, store_warnings
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
        ended_too: whether to return runs that had ended at the first look, too.
        waits: whether a folder without runs may get its first one.
        note: called with a sentence about runs and logs that are left out.
        warned: the warnings that were noted, here or at other places; new ones are added.
    """

    def __init__(
        self,
        source: str,
        read_as: str | None,
        mirrors: Path,
        *,
        whole: bool,
        ended_too: bool = False,
        waits: bool = False,
        note: Callable[[str], None] = lambda _: None,
        warned: set[str] | None = None,
    ) -> None:
        self._address = local_address(source, mirrors)
        self._read_as = read_as
        self._source: Source | None = None
        self._growing = Growing(None if whole else _STEPS_HELD)
        self._ended_too = ended_too
        self._waits = waits
        self._note = note
        #: The ids of the runs that were noted as left out.
        self._noted: set[str] = set()
        self._warned = set() if warned is None else warned
        #: The runs that had ended at the first look: folders in stores, otherwise ids.
        self._ended_before: set[Hashable] | None = set() if ended_too else None
        path = Path(self._address.place)
        self.where = (
            where_is(path) if self._is_stored(path) else open_source(self._address.place).where
        )

    @property
    def may_begin(self) -> bool:
        """Whether it is a log or folder that is there, and may still get its first steps."""
        path = Path(self._address.place)
        return not self._ended_too and (path.is_file() or (self._waits and path.is_dir()))

    def look(self) -> list[Run]:
        """Read new rows; return the run that is named, or else all runs of the place.

        Of several runs, those that had ended at the first look are left out.

        Raises:
            StallscopeError: if nothing is there, or it cannot be read.
        """
        path = Path(self._address.place)
        if self._is_stored(path):
            return self._stored(path)
        if self._source is None:
            self._source = open_source(self._address.place)
        runs = read(self._source, read_as=self._read_as, reads=self._growing)
        self._warn(place_warnings(runs))
        runs = named_runs(self._address._replace(place=self.where), runs)
        if self._ended_before is None:
            several = len(runs) > 1
            self._ended_before = {run.id for run in runs if several and run.status == "completed"}
        left_out = self._ended_before | ({*self._abandoned(runs)} if not self._ended_too else set())
        return [run for run in runs if run.id not in left_out]

    def _abandoned(self, runs: Sequence[Run]) -> list[str]:
        """Return the ids of runs whose processes were killed, and note new ones."""
        abandoned = _abandoned(runs)
        new = [run for run in abandoned if run.id not in self._noted]
        if new:
            self._noted |= {run.id for run in new}
            self._note(_left_out(self.where, new, runs[0]))
        return [run.id for run in abandoned]

    def _warn(self, warnings: Iterable[str]) -> None:
        """Note each new warning about what is in no run."""
        for warning in warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                self._note(f"warning: {plain(warning)}")

    def _is_stored(self, path: Path) -> bool:
        return is_collected(path) or bool(collected_runs(path))

    def _stored(self, path: Path) -> list[Run]:
        mirror = Mirror.of(path) or Mirror.of(path.parent)
        if mirror is not None:
            mirror.update_all()
        if is_collected(path):
            return [RunOnDisk.open(path)]
        if self._address.run:
            return [RunOnDisk.open(collected_folder(path, self._address.run))]
        self._warn(store_warnings(path))
        before = self._ended_before or set()
        opened = {
            folder: RunOnDisk.open(folder)
            for folder in collected_runs(path)
            if folder not in before
        }
        if self._ended_before is None:
            self._ended_before = {
                folder for folder, run in opened.items() if run.status == "completed"
            }
        return [run for folder, run in opened.items() if folder not in self._ended_before]


def _abandoned(runs: Sequence[Run]) -> list[Run]:
    """Return open runs that recorded nothing since the newest one started: they were killed.

    Args:
        runs: of one folder, the newest first.
    """
    newest, *older = runs
    if newest.started_at is None:
        return []
    start_ns = int(newest.started_at.timestamp() * 1e9)
    return [run for run in older if run.status != "completed" and _last_record_ns(run) < start_ns]


def _last_record_ns(run: Run) -> float:
    """Return when a run's recorder wrote last, in wall time: a step, or that it is in a step."""
    last = run.steps.group_by("log").aggregate([("end", "max")]).to_pydict()
    moments: list[float] = [
        end + run.logs[log].wall_minus_monotonic
        for log, end in zip(last["log"], last["end_max"], strict=True)
        if end is not None
    ]
    for log in run.logs:
        overdue = OverduePosition.of(log)
        seen = 0.0 if overdue is None else overdue.since_ns + overdue.seconds * 1e9
        moments.append(max(log.anchor + log.wall_minus_monotonic, seen))
    return max(moments)


def _left_out(where: str, abandoned: Sequence[Run], newest: Run) -> str:
    """Say which runs are not watched, and how to watch them."""
    names = joined([run.name for run in abandoned])
    return (
        f"{where}: not watched, because nothing was recorded since {newest.name} started: {names}; "
        f"to watch one, name it: {where}#{abandoned[0].id}"
    )
