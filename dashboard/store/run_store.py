"""The store: a list of runs, and their analyses on demand."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime

import numpy as np
import numpy.typing as npt

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.gains.what_if import Bottleneck
from stallscope.analysis.ledger.ledger import BYTES_PER_RANK, CachedLedger
from stallscope.arrays.local_matrix import LocalMatrix
from stallscope.catalogue.analysis_cache import Analyse, StoredRun, cached_analysis
from stallscope.catalogue.entry import AnalysisSummary
from stallscope.collector.store.loading import RunOnDisk
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.parsers.base import ShowProgress, no_progress
from stallscope.run import Run

from .cache import Cache, free_tables
from .refresh import PlaceContents, Refresher, WatchedPlace
from .run_list import CurrentListing, ListedRun, RunListing
from .run_sources import RunsInMemory, RunSource

# For runs and analyses together. A run of a thousand ranks and steps takes about 100 MB, its analysis
# 50 MB more.
_MOST_BYTES = 1 << 30
_MOST_SUMMARIES = 10_000
# With more runs than these, only runs of the same job are offered for comparison.
_MOST_CANDIDATES = 200

# The facts of a log, as Python objects.
_BYTES_PER_LOG = 8192
# A step of one rank in the timeline's sums.
_BYTES_PER_CELL = 12


class RunStore:
    """Runs by unique ids that are safe in an address.

    The store lists runs in memory and runs on sources together. Runs on sources are loaded when a user
    opens them, and dropped when others need the memory. Thread-safe: each analysis is computed once for
    all threads that request it, and a thread waits only for the analysis that it requested.

    Args:
        runs: runs in memory.
        places: places with logs, whose runs are read into memory now, and when their folders change.
        show_progress: shows how many places and runs were read.
        analyse: analyses a run with its baseline and its single-rank baseline.
        sources: further places of runs.
        most_bytes: the memory limit of cached runs and analyses.
        clock: a monotonic clock in seconds.

    Raises:
        StallscopeError: if a source cannot be read.
    """

    def __init__(
        self,
        runs: Iterable[Run] = (),
        analyse: Analyse = analyse,
        *,
        places: Sequence[WatchedPlace] = (),
        show_progress: ShowProgress = no_progress,
        sources: Sequence[RunSource] = (),
        most_bytes: int = _MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._memory = memory = RunsInMemory(runs)
        self._places = tuple(places)
        self._clock = clock
        self._refresher = Refresher(clock)
        for place in places:
            contents = place.look(show_progress)
            if contents is not None:
                memory.update(place, contents)
        for key, run in memory.runs.items():
            self._refresher.register(key, run)
        in_memory = memory.runs or any(place.is_watched for place in places)
        self._current = CurrentListing([memory, *sources] if in_memory else sources)
        self._analyse = analyse
        self._cache = Cache(most_bytes, size_of)
        self._rests = Cache(math.inf)
        self._summaries = Cache(_MOST_SUMMARIES)

    def refresh(self) -> None:
        """Find runs that were added or removed; reads only what has changed."""
        for place in self._places:
            contents = place.look()
            if contents is not None:
                self._update(place, contents)
        self._current.refresh()

    def refresh_run(self, run_id: str) -> None:
        """Read a run that is being recorded again, unless it has not grown or was read recently."""
        run = self._memory.runs.get(run_id)
        if self._memory.head_of(run_id) is not None:
            return  # its analysis reads it
        grown = None if run is None else self._refresher.refreshed(run_id, run)
        if grown is None:
            return
        self._current.apply(lambda: self._memory.replace(run_id, grown))
        self._discard({run_id})

    def read_at(self, run_id: str) -> datetime | None:
        """Return when a run that is being recorded was read last, in UTC; None for all other runs."""
        return self._refresher.read_at(run_id)

    def logs_deleted(self, run_id: str) -> bool:
        """Return whether the logs of a run were deleted after the dashboard read them.

        Raises:
            NotFoundError: if there is no run with that id.
        """
        return self._listed(run_id).source.logs_deleted(run_id)

    def listing(self) -> RunListing:
        """Return the list of runs as of the last refresh, with the figures known so far."""
        return self._current.listing

    def runs(self) -> Sequence[ListedRun]:
        """Return all listed runs: those in memory in their given order, then the newest first."""
        return self.listing().shown

    def candidates(self, run_id: str, chosen: str | None = None) -> Sequence[ListedRun]:
        """Return runs to compare a run with: all of a few runs, of many those of the same job.

        Args:
            run_id: the run.
            chosen: a run to include in any case.

        Raises:
            NotFoundError: if there is no run with that id.
        """
        entry = self._listed(run_id).entry
        runs = list(self.listing().all)
        if len(runs) > _MOST_CANDIDATES:
            runs = [run for run in runs if run.entry.job == entry.job or run.id == chosen]
            runs.sort(key=lambda run: run.id != chosen)
        return runs[:_MOST_CANDIDATES]

    def __contains__(self, run_id: str) -> bool:
        return run_id in self.listing()

    def analysis(self, run_id: str, baseline_id: str | None = None) -> Analysis:
        """Analyse a run with the named baseline, and with its single-rank baseline if there is one.

        Raises:
            NotFoundError: if there is no run with one of the ids.
            UnreadableError: if one of the runs was deleted or is damaged.
        """
        listed = [
            self._whole(known_id) for known_id in (run_id, baseline_id) if known_id is not None
        ]
        versions = tuple(run.source.version(run.entry) for run in listed)

        def make() -> Analysis:
            stored, *baseline = [self._placed(run) for run in listed]
            single = self._single(listed[0])
            start = self._clock()
            analysis = cached_analysis(stored, next(iter(baseline), None), single, self._analyse)
            self._refresher.add_cost(run_id, self._clock() - start)
            free_tables(analysis)
            return analysis

        result = self._cache.get(("analysis", run_id, baseline_id, versions), make)
        self._list_summary(listed[0], versions[0], baseline_id, result)
        if result.baseline is not None:
            self._list_summary(listed[1], versions[1], None, result.baseline)
        return result

    def verdict(self, run_id: str) -> Bottleneck:
        """Return a run's verdict, with its own baseline if there is one.

        Raises:
            NotFoundError, UnreadableError: like ``analysis``.
        """
        listed = self._listed(run_id)
        if listed.verdict is None:
            version = listed.source.version(listed.entry)
            summary = self._summaries.get((run_id, version), lambda: self._summarise(listed))
            listed = listed.with_summary(summary)
        assert listed.verdict is not None  # every analysis has one
        return listed.verdict

    def note_failure(self, run_id: str, message: str) -> None:
        """List a run in memory with the reason why it could not be analysed."""
        if run_id in self._memory.runs:
            self._current.apply(lambda: self._memory.note_failure(run_id, message))

    def forget_failures(self) -> None:
        """Let the list try again to analyse the runs that could not be analysed."""
        if any(run.failure for run in self.listing().all):
            self._current.apply(self._memory.forget_failures)

    def baseline_of(self, run_id: str) -> str | None:
        """Return the id of the synthetic run of the same job; None without one.

        Raises:
            NotFoundError: if there is no run with that id.
        """
        return self.listing().baseline_of(self._listed(run_id))

    def reruns(self, run_id: str) -> list[str]:
        """Return the ids of this and the earlier runs of the job, the oldest first.

        Raises:
            NotFoundError: if there is no such run.
        """
        return self.listing().reruns(self._listed(run_id))

    def _update(self, place: WatchedPlace, contents: PlaceContents) -> None:
        """Change the runs in memory to those that a look at their place has found."""
        changed: set[str] = set()
        self._current.apply(lambda: changed.update(self._memory.update(place, contents)))
        self._discard(changed)
        for run_id in changed:
            run = self._memory.runs.get(run_id)
            if run is not None:
                self._refresher.register(run_id, run)

    def _discard(self, run_ids: set[str]) -> None:
        """Drop the results for earlier states of runs in memory."""
        self._cache.discard(lambda key: isinstance(key, tuple) and not run_ids.isdisjoint(key[1:3]))

    def _listed(self, run_id: str) -> ListedRun:
        if run_id not in self:
            self.refresh()  # it may be new
        try:
            return self.listing()[run_id]
        except KeyError:
            raise NotFoundError(f"there is no run {run_id!r} here") from None

    def _whole(self, run_id: str) -> ListedRun:
        """Return a run in the list, and read the rows of its logs if only their heads were read.

        Raises:
            NotFoundError: if there is no run with that id.
            UnreadableError: if its rows cannot be read.
        """
        self._listed(run_id)
        head = self._memory.head_of(run_id)
        if head is not None:
            place, unit = head

            def read_rest() -> None:
                contents = place.read_rest(unit)
                # A refresh may have read it meanwhile.
                if self._memory.head_of(run_id) is not None:
                    self._update(place, contents)

            self._rests.get(head, read_rest)
        return self._listed(run_id)

    def _load(self, listed: ListedRun) -> Run:
        if listed.source.in_memory:
            return listed.source.load(listed.id, listed.entry)
        return self._cache.get(
            ("run", listed.id, listed.source.version(listed.entry)),
            lambda: listed.source.load(listed.id, listed.entry),
        )

    def _placed(self, listed: ListedRun) -> StoredRun:
        place = listed.source.place(listed.entry)
        return StoredRun(self._load(listed), place, listed.entry.manifest)

    def _single(self, listed: ListedRun) -> StoredRun | None:
        single_id = self.listing().single_of(listed)
        # If it was deleted in the meantime, the analysis ignores it.
        with suppress(StallscopeError):
            return None if single_id is None else self._placed(self._whole(single_id))
        return None

    def _summarise(self, listed: ListedRun) -> AnalysisSummary:
        return AnalysisSummary.of(self.analysis(listed.id, self.baseline_of(listed.id)))

    def _list_summary(
        self, listed: ListedRun, version: Hashable, baseline_id: str | None, analysis: Analysis
    ) -> None:
        """List a run in memory with its summary, if the analysis is the one that the list shows."""
        if listed.verdict is not None or not listed.source.in_memory:
            return
        if baseline_id != self.listing().baseline_of(listed):
            return
        summary = AnalysisSummary.of(analysis)

        def summarise() -> None:
            # The run may have grown or gone since it was analysed.
            if listed.id in self._memory.runs and self._memory.version(listed.entry) == version:
                self._memory.summarise(listed.id, summary)

        self._current.apply(summarise)


# -- Estimate how much memory runs and analyses take ----------------------------------------------


def size_of(value: Run | Analysis) -> int:
    """Return the bytes of a run's tables, or of an analysis with its runs and baselines.

    A run that several analyses share counts for each of them, so sums are upper bounds.
    """
    if isinstance(value, Run):
        return _tables_of(value) + _BYTES_PER_LOG * len(value.logs)
    # Views of one array are counted once.
    owners = {id(owner): owner.nbytes for owner in map(_owner, _arrays(value))}
    others = (reference for reference in (value.baseline, value.single) if reference is not None)
    return sum(owners.values()) + _on_demand(value) + size_of(value.run) + sum(map(size_of, others))


def _on_demand(analysis: Analysis) -> int:
    """Return the bytes of arrays that pages compute on demand."""
    ledger = analysis.ledger
    if ledger is None:
        return 0
    if len(analysis.generations) > 1:
        return analysis.run.rows * (BYTES_PER_RANK + _BYTES_PER_CELL)
    per_rank = ledger.pending_bytes if isinstance(ledger, CachedLedger) else 0
    return per_rank + len(ledger) * len(ledger.ranks) * _BYTES_PER_CELL


def _tables_of(run: Run) -> int:
    if isinstance(run, RunOnDisk):
        # They are freed after the analysis.
        return 0
    series = sum(metric.wall_ns.nbytes + metric.value.nbytes for metric in run.series)
    return int(run.steps.nbytes + run.intervals.nbytes) + series


def _arrays(analysis: Analysis) -> Iterator[npt.NDArray[np.generic]]:
    for ledger in (analysis.ledger, analysis.steady):
        if ledger is not None:
            yield from (array for array in vars(ledger).values() if isinstance(array, np.ndarray))
            cells = vars(ledger).get("cells")
            yield from cells.arrays if isinstance(cells, LocalMatrix) else ()


def _owner(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return array.base if isinstance(array.base, np.ndarray) else array
