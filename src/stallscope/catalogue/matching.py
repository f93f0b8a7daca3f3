"""Find baselines by the runs' facts.

They are looked up on every request, because a baseline may be collected after its run. A store has many
people's runs, so a run without a recorded model has no baseline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from .entry import Entry, circumstances, job_facts, job_of

if TYPE_CHECKING:
    from stallscope.run import Run


class Jobs(Protocol):
    """A list of runs that can find runs of the same job."""

    def same_job(self, job: str, synthetic: bool, ranks: int | None = None) -> list[Entry]:
        """Find runs of the same job, like ``Catalogue.same_job``."""


class Baselines:
    """The baselines of many runs: runs of one job share the search."""

    def __init__(self, catalogue: Jobs) -> None:
        self._catalogue = catalogue
        self._candidates: dict[tuple[str, int], list[Entry]] = {}

    def of(self, run: Run | Entry) -> Entry | None:
        """Find the baseline: the same job on synthetic data and as many ranks; None without one.

        Among several, choose the one that differs least in number of hosts, versions and threads, then
        one without a fault, then the newest. The analysis reports the differences.
        """
        wanted = _Wanted(run)
        return None if wanted.synthetic else self._best(wanted, wanted.ranks)

    def single_of(self, run: Run | Entry) -> Entry | None:
        """Find the same job on synthetic data and one rank, chosen likewise; None without one."""
        wanted = _Wanted(run)
        return None if wanted.ranks == 1 else self._best(wanted, 1)

    def _best(self, wanted: _Wanted, ranks: int) -> Entry | None:
        if wanted.model is None:
            return None
        key = wanted.job, ranks
        if key not in self._candidates:
            entries = self._catalogue.same_job(wanted.job, synthetic=True, ranks=ranks)
            self._candidates[key] = _newest_of_each(entries)
        return wanted.best_of(self._candidates[key])


class _Wanted:
    """The facts of a run, or of its entry, to match."""

    def __init__(self, run: Run | Entry) -> None:
        if isinstance(run, Entry):
            self.ranks, self.job, self._facts = run.ranks, run.job, run.facts
        else:
            self.ranks, self._facts = run.size, job_facts(run)
            self.job = job_of(self._facts)
        self.synthetic = run.synthetic
        self.model = self._facts.get("model")
        self._hosts = len(run.hosts)

    def best_of(self, candidates: Sequence[Entry]) -> Entry | None:
        """Return the candidate that differs least, the first if there are several."""
        if len(candidates) < 2:
            return next(iter(candidates), None)
        wanted = circumstances(self._hosts, self._facts)
        return min(candidates, key=lambda candidate: _differences(wanted, candidate))


def _differences(wanted: Sequence[str], candidate: Entry) -> int:
    """Count the circumstances in which another run differs."""
    theirs = circumstances(len(candidate.hosts), candidate.facts)
    return sum(a != b for a, b in zip(wanted, theirs, strict=True))


def _newest_of_each(entries: Iterable[Entry]) -> list[Entry]:
    """Keep the newest run of each set of circumstances, if possible one without a fault.

    Args:
        entries: the runs, newest first.
    """
    first: dict[tuple[str, ...], Entry] = {}
    for entry in sorted(entries, key=has_fault_as_baseline):
        first.setdefault(circumstances(len(entry.hosts), entry.facts), entry)
    return list(first.values())


def has_fault_as_baseline(entry: Entry) -> bool:
    """Whether the analysis has recorded a fault of the run as a baseline.

    Entries of older versions only say whether there is a fault.
    """
    summary = entry.summary
    recorded = summary.fault_as_baseline
    return bool(summary.fault) if recorded is None else recorded
