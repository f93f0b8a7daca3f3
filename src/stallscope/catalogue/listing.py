"""List the runs of a store that a user names, and find the baselines among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stallscope.collector.store.layout import address, where_is
from stallscope.collector.store.manifests import is_collected, may_be_entered
from stallscope.errors import NotFoundError

from .entry import SHARES, Entry, circumstances, job_facts, job_of
from .index import is_store

if TYPE_CHECKING:
    from stallscope.run import Run

_PLACES_SHOWN = 3


@contextmanager
def local_store(place: str) -> Iterator[Path]:
    """Return the store's folder; for a URL, the folder of a local mirror.

    Raises:
        NotFoundError: if no runs were collected there; the message names stores nearby.
    """
    if "://" not in place:
        yield _checked(Path(place))
        return
    # Importing the URL libraries takes longer than listing a folder.
    from stallscope.collector.store.mirror import Mirror, temporary_mirrors

    with temporary_mirrors() as folder:
        mirror = Mirror.create(folder / "store", place)
        mirror.update_all()
        yield _checked(mirror.folder)


def _checked(store: Path) -> Path:
    if not is_store(store):
        raise NotFoundError(_no_runs(store))
    return store


def _no_runs(store: Path) -> str:
    """Say that there are no runs here, and name stores nearby."""
    if "://" in address(store):
        return f"{where_is(store)}: no runs were collected to this URL"
    if not store.is_dir():
        return f"{store}: no such folder"
    if is_collected(store):
        return f"{store}: this is one collected run; its store is {store.absolute().parent}"
    near = [folder for folder in sorted(_near(store)) if is_store(folder)][:_PLACES_SHOWN]
    hint = "stallscope collect LOGS --to STORE does that, and stallscope report reads logs in place"
    if near:
        hint = f"there are some in {', '.join(map(str, near))}"
    return f"{store}: no runs were collected into this folder; {hint}"


def _near(store: Path) -> list[Path]:
    """Return the usual places of stores: subfolders, and the demo's store."""
    below = [item for item in store.iterdir() if item.is_dir() and not item.name.startswith(".")]
    readable = [item for item in below if may_be_entered(item)]
    return [*readable, store / ".stallscope" / "demo"]


def entry_content(store: Path, entry: Entry, baseline: Entry | None) -> dict[str, Any]:
    """Return a run of a store as a JSON object; unknown values are None."""
    summary = entry.summary
    return {
        "id": entry.id,
        "name": entry.name,
        "path": where_is(store / entry.folder),
        "source": entry.source,
        "framework": entry.framework,
        "versions": _texts(entry.facts.get("versions")),
        "model": entry.model,
        "ranks": entry.ranks or None,
        "hosts": entry.hosts,
        "steps": summary.steps,
        "epochs": summary.epochs,
        "batch_size": entry.batch_size,
        "synthetic": entry.synthetic,
        "status": entry.status or None,
        "started_at": entry.started_at,
        "collected_at": entry.collected_at,
        "bytes": entry.bytes,
        "samples_per_second": summary.samples_per_second,
        "step_ms": summary.step_ms,
        "verdict": summary.verdict,
        "cause": summary.cause,
        "fault": summary.fault,
        "goodput": summary.goodput,
        "named_ranks": summary.named_ranks,
        "named_hosts": summary.named_hosts,
        "shares": {name: summary.shares.get(name) for name in SHARES},
        "baseline": None if baseline is None else baseline.id,
    }


def _texts(versions: object) -> dict[str, str | None]:
    # A log may record any value as its versions; None is a library that is not there.
    items = versions.items() if isinstance(versions, Mapping) else ()
    return {str(name): None if value is None else str(value) for name, value in items}


# -- Find baselines by the runs' facts ------------------------------------------------------------
#
# They are looked up on every request, because a baseline may be collected after its run. A store
# has many people's runs, so a run without a recorded model has no baseline.


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
        return None if wanted.ranks < 2 else self._best(wanted, 1)

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
            self.ranks, self._facts = run.known_size or 0, job_facts(run)
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
