"""The store: which runs there are, and one's analysis on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Lock, Thread

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.gains.baseline import find_baseline, find_single
from stallscope.analysis.gains.bottleneck import Bottleneck
from stallscope.analysis.ledger.recalled import RecalledLedger
from stallscope.catalogue.analysis_cache import Analyse, StoredRun, cached_analysis
from stallscope.catalogue.entry import Summary as Figures
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.run import Run

from ..memory import give_back
from .cache import Cache
from .listing import Listed, Listing
from .refresh import Renewals
from .run_sources import Memory, Shelf
from .sizes import size_of
from .snapshot import Stocktaker

#: Bytes of runs and analyses together. A run of a thousand ranks and steps has about 100 MB, its
#: analysis 50 MB more.
_MOST_BYTES = 1 << 30
_MOST_SUMMARIES = 10_000
#: Of more runs than these, only those of the same job are offered to hold a run against.
_MOST_CANDIDATES = 200


@dataclass(frozen=True)
class RunInfo:
    """What is known of a run without taking it apart."""

    id: str
    name: str
    source: str
    synthetic: bool
    #: How many ranks trained; 0 if not known.
    size: int

    @classmethod
    def of(cls, listed: Listed) -> RunInfo:
        entry = listed.entry
        return cls(listed.id, entry.name, entry.source, entry.synthetic, entry.ranks)


@dataclass(frozen=True)
class Summary:
    """A run in one line."""

    bottleneck: Bottleneck
    step_ms: float | None
    samples_per_second: float | None


class RunStore:
    """Runs, each under an id of its own that can stand in an address.

    Runs in memory and runs on shelves are listed together. Those on shelves are loaded when somebody
    looks at them, and dropped again when others need the room. Requests come from several threads: an
    analysis is made once, however many ask for it at a time, and no caller waits for one that it has not
    asked for.

    Args:
        runs: runs that are loaded.
        analyse: takes a run apart, against its baseline and the one on one rank.
        shelves: further places of runs.
        most_bytes: what runs and analyses that are kept may take together.
        clock: seconds that only go forward.

    Raises:
        StallscopeError: if a shelf cannot be read.
    """

    def __init__(
        self,
        runs: Iterable[Run] = (),
        analyse: Analyse = analyse,
        *,
        shelves: Sequence[Shelf] = (),
        most_bytes: int = _MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._memory = memory = Memory(runs)
        self._runs = memory.runs
        self._clock = clock
        self._renewals = Renewals(clock)
        for key, run in memory.runs.items():
            self._renewals.first_seen(key, run)
        self._shelves = Stocktaker([memory, *shelves] if memory.runs else list(shelves))
        self._analyse = analyse
        self._kept = Cache(most_bytes, size_of)
        self._figures = Cache(_MOST_SUMMARIES)
        self._baselines = Cache(_MOST_SUMMARIES)
        #: What was found of runs in memory: the list shows it, too.
        self._found: dict[str, Figures] = {}
        self._learned = 0
        self._listing: tuple[tuple[int, int], Listing] | None = None
        self._lock = Lock()

    def refresh(self) -> None:
        """Look for runs that have come or gone; where nothing has changed, nothing is read."""
        self._shelves.look()

    def renew(self, run_id: str) -> None:
        """Read a run again that is being recorded, where it has grown and was not read just before."""
        run = self._runs.get(run_id)
        grown = None if run is None else self._renewals.renewed(run_id, run)
        if grown is None:
            return
        self._memory.replace(run_id, grown)
        with self._lock:
            self._found.pop(run_id, None)
            self._learned += 1
        # What was found of its beginning is not needed any more.
        self._kept.forget(lambda key: isinstance(key, tuple) and run_id in key[1:3])
        self._figures.forget(lambda key: isinstance(key, tuple) and key[0] == run_id)

    def read_at(self, run_id: str) -> datetime | None:
        """When a run that is being recorded was read last, in UTC; None of all others."""
        return self._renewals.read_at(run_id)

    def listing(self) -> Listing:
        """All runs as the store was refreshed last, with what was found of them until now."""
        stock = self._shelves.stock
        with self._lock:
            state = stock.number, self._learned
            if self._listing is None or self._listing[0] != state:
                fresh = Listing(stock.by_id.values(), self._baseline_in_memory, stock.problems)
                self._listing = state, fresh.with_figures(dict(self._found))
            return self._listing[1]

    def runs(self) -> Sequence[RunInfo]:
        """All runs that are listed: those in memory as they were given, then the newest first."""
        return [RunInfo.of(one) for one in self.listing().shown]

    def candidates(self, run_id: str, chosen: str | None = None) -> Sequence[RunInfo]:
        """Runs to hold a run against: of a few all of them, of many those of the same job.

        Args:
            run_id: the run.
            chosen: a run that is among them in any case.

        Raises:
            NotFoundError: if there is no run of that id.
        """
        own = self._listed(run_id).entry
        there = list(self.listing().all)
        if len(there) > _MOST_CANDIDATES:
            there = [one for one in there if one.entry.job == own.job or one.id == chosen]
            there.sort(key=lambda one: one.id != chosen)
        return [RunInfo.of(one) for one in there[:_MOST_CANDIDATES]]

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._shelves.stock.by_id

    def analysis(self, run_id: str, baseline_id: str | None = None) -> Analysis:
        """A run against a baseline where one is named, and against the one on one rank if it is here.

        Raises:
            NotFoundError: if there is no run of either id.
            UnreadableError: if one of them has gone from its shelf, or is damaged.
        """
        listed = [self._listed(one) for one in (run_id, baseline_id) if one is not None]
        versions = tuple(one.shelf.version(one.entry) for one in listed)

        def make() -> Analysis:
            own, *baseline = [self._placed(one) for one in listed]
            single = self._single(listed[0], own.run)
            began = self._clock()
            made = cached_analysis(own, next(iter(baseline), None), single, self._analyse)
            self._renewals.took(run_id, self._clock() - began)
            give_back()
            if isinstance(made.ledger, RecalledLedger):
                # The overview does without; ranks and steps are opened next.
                Thread(target=_make_ready, args=(made.ledger,), daemon=True).start()
            return made

        return self._kept.get(("analysis", run_id, baseline_id, versions), make)

    def summary(self, run_id: str) -> Summary:
        """A run in one line, against its own baseline where there is one.

        Raises:
            NotFoundError, UnreadableError: as ``analysis``.
        """
        listed = self._listed(run_id)
        if listed.verdict is None:
            version = listed.shelf.version(listed.entry)
            figures = self._figures.get((run_id, version), lambda: self._summarise(listed))
            listed = listed.with_figures(figures)
        figures = listed.entry.summary
        assert listed.verdict is not None  # every analysis has one
        return Summary(listed.verdict, figures.step_ms, figures.samples_per_second)

    def baseline_of(self, run_id: str) -> str | None:
        """The id of the synthetic run that is the same job; None where there is none.

        Raises:
            NotFoundError: if there is no run of that id.
        """
        return self.listing().baseline_of(self._listed(run_id))

    def _listed(self, run_id: str) -> Listed:
        if run_id not in self:
            self.refresh()  # it may just have come
        try:
            return self._shelves.stock.by_id[run_id]
        except KeyError:
            raise NotFoundError(f"there is no run {run_id!r} here") from None

    def _load(self, listed: Listed) -> Run:
        if listed.shelf.in_memory:
            return self._runs[listed.id]
        return self._kept.get(
            ("run", listed.id, listed.shelf.version(listed.entry)),
            lambda: listed.shelf.load(listed.id, listed.entry),
        )

    def _placed(self, listed: Listed) -> StoredRun:
        place = listed.shelf.place(listed.entry)
        return StoredRun(self._load(listed), place, listed.entry.manifest)

    def _single(self, listed: Listed, run: Run) -> StoredRun | None:
        in_memory = find_single(run, self._runs.values()) if listed.shelf.in_memory else None
        if in_memory is not None:
            return StoredRun(in_memory)
        found = self.listing().single_of(listed)
        # It may have gone meanwhile: what it would add is missing then, and the rest is as it was.
        with suppress(StallscopeError):
            return None if found is None else self._placed(self._listed(found))
        return None

    def _baseline_in_memory(self, run_id: str) -> str | None:
        return self._baselines.get(run_id, lambda: self._find_baseline(run_id))

    def _find_baseline(self, run_id: str) -> str | None:
        synthetic = {key: run for key, run in self._runs.items() if run.synthetic and key != run_id}
        found = find_baseline(self._runs[run_id], synthetic.values())
        return next((key for key, other in synthetic.items() if other is found), None)

    def _summarise(self, listed: Listed) -> Figures:
        figures = Figures.of(self.analysis(listed.id, self.baseline_of(listed.id)))
        if listed.shelf.in_memory:
            with self._lock:
                self._found[listed.id] = figures
                self._learned += 1
        return figures


def _make_ready(ledger: RecalledLedger) -> None:
    # Errors of reading are shown when a page needs the run.
    with suppress(StallscopeError):
        _ = ledger.arrival
