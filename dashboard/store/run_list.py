"""The list of all runs, now or at one moment, with search, sorting, and lookups by id and job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from threading import Lock
from typing import Any

from stallscope.analysis.gains.what_if import Bottleneck
from stallscope.catalogue.entry import AnalysisSummary, Entry
from stallscope.catalogue.listing import Baselines
from stallscope.catalogue.where import Filter
from stallscope.conditions.language import fold
from stallscope.errors import StallscopeError
from stallscope.text.verdicts import short_verdict
from stallscope.words import VERDICT_CAUSES, VERDICTS, known

from .run_sources import RunSource, SourceContents

#: The number of runs in a trend.
_TREND = 12


@dataclass(frozen=True)
class ListedRun:
    """A run in the list."""

    id: str
    entry: Entry
    source: RunSource
    #: Whether the list shows it; otherwise it is only for comparison.
    shown: bool = True
    #: The lost fraction of its baseline's throughput, if its source records it.
    gap: float | None = None
    #: Why the run could not be analysed.
    failure: str | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the list still analyses the run."""
        return self.verdict is None and self.failure is None and self.source.in_memory

    @cached_property
    def verdict(self) -> Bottleneck | None:
        """The verdict as far as the list knows it; None without one that this version knows."""
        summary = self.entry.summary
        kind, cause = known(summary.verdict, VERDICTS), known(summary.cause, VERDICT_CAUSES)
        if kind is None:
            return None
        named = summary.named_ranks, summary.named_hosts
        # Older versions did not distinguish faults from other parts of the step.
        return Bottleneck(kind, cause, "", *named, fault=summary.fault is not False)

    def with_summary(self, summary: AnalysisSummary) -> ListedRun:
        """Return the run with the summary of its analysis."""
        return replace(self, entry=replace(self.entry, summary=summary))

    @cached_property
    def text(self) -> str:
        """The text that a search looks at."""
        entry, bottleneck = self.entry, self.verdict
        # A healthy run's kind is no fault, and the list does not show it.
        kind = "" if bottleneck is None or bottleneck.healthy else bottleneck.kind
        verdict = "" if bottleneck is None else f"{kind} {short_verdict(bottleneck)}"
        names = (entry.name, entry.id, entry.model, entry.framework, entry.source)
        texts = [
            *filter(None, names),
            *entry.hosts,
            verdict,
            "synthetic" if entry.synthetic else "",
        ]
        return fold("\n".join(texts))


class RunListing:
    """All runs; nothing in it changes."""

    def __init__(
        self,
        listed: Iterable[ListedRun],
        problems: Sequence[str] = (),
    ) -> None:
        self.problems = tuple(problems)
        self._by_id = {run.id: run for run in listed}
        self.shown = tuple(run for run in self._by_id.values() if run.shown)
        self._ids = {id(run.entry): run.id for run in self._by_id.values()}
        self._baselines = Baselines(self)
        self._gaps: dict[str, float | None] = {}

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._by_id

    def __getitem__(self, run_id: str) -> ListedRun:
        return self._by_id[run_id]

    @property
    def all(self) -> Iterable[ListedRun]:
        """All runs, including hidden ones."""
        return self._by_id.values()

    def same_job(self, job: str, synthetic: bool, ranks: int | None = None) -> list[Entry]:
        """Return runs that do the same work, the newest first, like ``Catalogue.same_job``."""
        return [
            entry for entry in self._jobs.get((job, synthetic), ()) if ranks in (None, entry.ranks)
        ]

    def baseline_of(self, listed: ListedRun) -> str | None:
        """Return the id of the same job on synthetic data and as many ranks; None without one."""
        entry, best = listed.entry, self._baselines.of(listed.entry)
        if not listed.source.in_memory:
            return self._id_of(best)
        twin = None if entry.synthetic else self._twin(entry, entry.ranks, len(entry.hosts))
        return self._id_of(twin or self._collected(best))

    def single_of(self, listed: ListedRun) -> str | None:
        """Return the id of the same job on synthetic data and one rank; None without one."""
        entry, best = listed.entry, self._baselines.single_of(listed.entry)
        if not listed.source.in_memory:
            return self._id_of(best)
        twin = None if entry.ranks < 2 else self._twin(entry, 1)
        return self._id_of(twin or self._collected(best))

    def gap(self, listed: ListedRun) -> float | None:
        """Return the lost fraction of the baseline's throughput, as far as the list knows it."""
        if listed.id not in self._gaps:
            self._gaps[listed.id] = self._gap(listed)
        return self._gaps[listed.id]

    def trend(self, listed: ListedRun) -> list[float]:
        """Return the throughputs of the last runs of the same job up to this one; empty for one run.

        The runs have the same number of ranks and the same kind of data.
        """
        values = [entry.summary.samples_per_second for entry in self._reruns(listed)]
        known = [value for value in values if value is not None]
        return known if len(known) > 1 else []

    def reruns(self, listed: ListedRun) -> list[str]:
        """Return the ids of the runs of ``trend``, the oldest first."""
        return [self._ids[id(entry)] for entry in self._reruns(listed)]

    def _reruns(self, listed: ListedRun) -> list[Entry]:
        entry = listed.entry
        if entry.model is None or entry.summary.samples_per_second is None:
            return []
        newest_first = self.same_job(entry.job, entry.synthetic, entry.ranks)
        at = next(place for place, candidate in enumerate(newest_first) if candidate is entry)
        known = [
            candidate
            for candidate in newest_first[at:]
            if candidate.summary.samples_per_second is not None
        ]
        return known[:_TREND][::-1]

    def matching(self, search: Filter, sort: str = "", *, reverse: bool = False) -> list[ListedRun]:
        """Return the runs that a search finds, sorted by a key of ``SORTS`` or in the list's order.

        Runs of ``undecided`` are not among them.

        Raises:
            UsageError: if a word of the search may only be a condition on an unknown field.
        """
        search.check_words([run.text for run in self.shown])
        undecided = {run.id for run in self.undecided(search)}
        matches = [
            run
            for run in self.shown
            if run.id not in undecided and search.finds(run.entry, run.text)
        ]
        value = SORTS.get(sort)
        if value is None:
            return matches
        known = [(key, run) for run in matches if (key := value(self, run)) is not None]
        unknown = [run for run in matches if value(self, run) is None]
        return [
            *(run for _, run in sorted(known, key=lambda item: item[0], reverse=reverse)),
            *unknown,
        ]

    def undecided(self, search: Filter) -> list[ListedRun]:
        """Return the runs whose pending analyses tell whether a search finds them."""
        return [
            run
            for run in self.shown
            if run.is_pending and search.waits_for_analysis(run.entry, run.text)
        ]

    def not_analysed(self, search: Filter) -> int:
        """Count the runs that a search cannot judge, because nothing analyses them here."""
        return sum(
            run.verdict is None
            and not run.is_pending
            and search.waits_for_analysis(run.entry, run.text)
            for run in self.shown
        )

    @cached_property
    def _jobs(self) -> Mapping[tuple[str, bool], list[Entry]]:
        jobs: dict[tuple[str, bool], list[Entry]] = defaultdict(list)
        for run in self.all:
            jobs[run.entry.job, run.entry.synthetic].append(run.entry)
        for entries in jobs.values():
            entries.sort(key=lambda entry: entry.began or "", reverse=True)
        return jobs

    def _id_of(self, entry: Entry | None) -> str | None:
        return None if entry is None else self._ids[id(entry)]

    def _twin(self, entry: Entry, ranks: int, hosts: int | None = None) -> Entry | None:
        """Find the newest synthetic run in memory that agrees with one in memory in all facts."""
        for candidate in self.same_job(entry.job, True, ranks) if entry.job else ():
            same_hosts = hosts in (None, len(candidate.hosts))
            if self._in_memory(candidate) and same_hosts and candidate.facts == entry.facts:
                return candidate
        return None

    def _collected(self, entry: Entry | None) -> Entry | None:
        # Among runs in memory, only twins count.
        return None if entry is None or self._in_memory(entry) else entry

    def _in_memory(self, entry: Entry) -> bool:
        return self[self._ids[id(entry)]].source.in_memory

    def _gap(self, listed: ListedRun) -> float | None:
        baseline_id = self.baseline_of(listed)
        throughput = listed.entry.summary.samples_per_second
        if baseline_id is None or throughput is None:
            return listed.gap
        best = self[baseline_id].entry.summary.samples_per_second
        return 1 - throughput / best if best else None


def _verdict(_: RunListing, run: ListedRun) -> Any:
    return None if run.verdict is None else short_verdict(run.verdict)


def _age(_: RunListing, run: ListedRun) -> Any:
    at = run.entry.began
    return None if at is None else -datetime.fromisoformat(at).timestamp()


#: Sort keys that only analyses tell.
ANALYSED_SORTS = ("verdict", "step", "throughput", "gap")


#: Sort keys of the list: smallest values first, None if unknown.
SORTS: dict[str, Callable[[RunListing, ListedRun], Any]] = {
    "name": lambda _, run: fold(run.entry.name),
    "verdict": _verdict,
    "step": lambda _, run: run.entry.summary.step_ms,
    "throughput": lambda _, run: run.entry.summary.samples_per_second,
    "gap": lambda listing, run: listing.gap(run),
    # 0 if the number is unknown.
    "ranks": lambda _, run: run.entry.ranks or None,
    "age": _age,
    "source": lambda _, run: fold(run.entry.source),
}

# -- The current list of the runs of all sources, refreshed on request ----------------------------


class CurrentListing:
    """Lists the runs of all sources, and rereads only sources that may have changed.

    Raises:
        StallscopeError: if a source cannot be read.
    """

    #: All runs at the last refresh, including those that are only for comparison.
    listing: RunListing

    def __init__(self, sources: Sequence[RunSource]) -> None:
        self._sources = [_SourceState(source) for source in sources]
        self._lock = Lock()
        for source in self._sources:
            source.refresh()
        self._list()

    def refresh(self) -> None:
        """Refresh all sources; one that is no longer readable keeps its runs and reports the error."""
        with self._lock:
            changed = [source.changed() for source in self._sources]
            if any(changed):
                self._list()

    def apply(self, change: Callable[[], None]) -> None:
        """Change the first source, which is in memory, and list its runs again."""
        with self._lock:
            change()
            self._sources[0].refresh()
            self._list()

    def _list(self) -> None:
        listed = [
            run for number, source in enumerate(self._sources, 1) for run in source.listed(number)
        ]
        self.listing = RunListing(
            listed, [problem for source in self._sources for problem in source.problems]
        )


class _SourceState:
    """A source and its contents at the last refresh."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self._state: Hashable = None
        self._contents = SourceContents([])
        self._error: str | None = None

    @property
    def problems(self) -> Sequence[str]:
        return [*self._contents.problems, *([self._error] if self._error else [])]

    def refresh(self) -> None:
        """Read the source.

        Raises:
            StallscopeError: if it cannot be read.
        """
        self._contents = self._source.contents()
        # Reading may have written the catalogue.
        self._state = self._source.state()

    def changed(self) -> bool:
        """Refresh the source if it may have changed; return whether it has, or whether it failed."""
        before = self._error
        try:
            self._error = None
            if self._source.state() == self._state:
                return before is not None
            self.refresh()
        except StallscopeError as error:
            self._error = str(error)
            return self._error != before
        return True

    def listed(self, number: int) -> Iterator[ListedRun]:
        """Yield the runs; ids of all sources but the first end with the source's number."""
        shown = self._source.shown
        for key, entry in self._contents.entries:
            # No name of a folder or a run ends with this suffix.
            run_id = key if number == 1 else f"{key}~{number}"
            yield ListedRun(
                run_id,
                entry,
                self._source,
                shown is None or key in shown,
                self._contents.gaps.get(key),
                self._contents.failures.get(key),
            )
