"""Where the runs of a dashboard come from: memory, or a folder that runs were collected into."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from stallscope.catalogue import Catalogue, Entry, values
from stallscope.catalogue.entry import Summary as Figures
from stallscope.catalogue.entry import job_facts, job_of
from stallscope.catalogue.index import folders_of
from stallscope.collector.safe_names import safe_name
from stallscope.collector.store.layout import CATALOGUE, MANIFEST
from stallscope.collector.store.loading import RunOnDisk
from stallscope.errors import UnreadableError
from stallscope.run import Run


@dataclass(frozen=True)
class Contents:
    """What is on a shelf: runs by ids that need no quoting in an address, and what cannot be listed."""

    entries: Sequence[tuple[str, Entry]]
    problems: Sequence[str] = ()
    #: By id, the fraction of the baseline's throughput that is lost, where it is recorded.
    gaps: Mapping[str, float] = field(default_factory=dict)


class Shelf(ABC):
    """A place that runs are taken from. Asked by many threads at once."""

    #: Whether a run is shown in the list, or only there to be compared with: ids; None shows all.
    shown: Collection[str] | None = None
    #: Whether its runs are loaded already: they are few, and are analysed for the list.
    in_memory = False

    @abstractmethod
    def state(self) -> Hashable:
        """Differs from an earlier one whenever the contents may differ.

        Raises:
            StallscopeError: if the shelf cannot be read.
        """

    @abstractmethod
    def contents(self) -> Contents:
        """All runs, in the order in which they are listed.

        Raises:
            StallscopeError: if the shelf cannot be read.
        """

    @abstractmethod
    def version(self, entry: Entry) -> Hashable:
        """Differs from an earlier one when the run does.

        Raises:
            UnreadableError: if the run has gone.
        """

    def place(self, entry: Entry) -> Path | None:
        """The folder that a run was collected into; None where it is somewhere else."""
        return None

    @abstractmethod
    def load(self, key: str, entry: Entry) -> Run:
        """The run itself.

        Raises:
            UnreadableError: if it has gone, or is damaged.
        """


class Memory(Shelf):
    """Runs that are loaded."""

    in_memory = True

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = _with_ids(runs)
        self._versions = dict.fromkeys(self.runs, 0)
        self._contents = self._listed()

    def state(self) -> Hashable:
        return sum(self._versions.values())

    def contents(self) -> Contents:
        return self._contents

    def version(self, entry: Entry) -> Hashable:
        return self._versions[entry.folder]

    def load(self, key: str, entry: Entry) -> Run:
        return self.runs[key]

    def replace(self, key: str, run: Run) -> None:
        """Put another state of a run in the place of the one that is there."""
        self.runs[key] = run
        self._contents = self._listed()
        self._versions[key] += 1

    def _listed(self) -> Contents:
        return Contents([(key, _entry(key, run)) for key, run in self.runs.items()])


class Collected(Shelf):
    """The runs of a folder that runs were collected into: listed from its catalogue, loaded one by one.

    Args:
        store: the folder.
        only: names of the runs' folders that are shown; the others are there to be compared with.
    """

    def __init__(self, store: Path, only: Collection[str] | None = None) -> None:
        self._store = store
        self.shown = None if only is None else {_key_of(name) for name in only}

    def state(self) -> Hashable:
        path = self._store / CATALOGUE
        try:
            stat = path.stat()
        except OSError:
            written = None  # nothing can be written here: the list is made in memory
        else:
            written = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        return written, frozenset(folders_of(self._store))

    def contents(self) -> Contents:
        with Catalogue.open(self._store) as catalogue:
            entries = catalogue.entries()
            return Contents([(_key_of(one.folder), one) for one in entries], catalogue.problems)

    def version(self, entry: Entry) -> Hashable:
        try:
            stat = (self.place(entry) / MANIFEST).stat()
        except OSError:
            raise self._gone(entry) from None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def load(self, key: str, entry: Entry) -> Run:
        folder = self.place(entry)
        try:
            return RunOnDisk.open(folder)
        except UnreadableError:
            if not (folder / MANIFEST).exists():
                raise self._gone(entry) from None
            raise

    def place(self, entry: Entry) -> Path:
        # The catalogue is a file that anybody may have written.
        return self._store / Path(entry.folder).name

    def _gone(self, entry: Entry) -> UnreadableError:
        return UnreadableError(
            f"{self.place(entry)}: this run has gone since it was listed; collect it again, or open "
            "another one"
        )


def _key_of(folder: str) -> str:
    """A folder's name as part of an address; names that Stallscope has given are as they are."""
    safe = safe_name(folder)
    return safe if safe == folder else f"{safe}~{sha256(folder.encode()).hexdigest()[:8]}"


def _with_ids(runs: Iterable[Run]) -> dict[str, Run]:
    """Runs by an id that needs no quoting in an address; copies of one run are numbered."""
    named: dict[str, Run] = {}
    for run in runs:
        base = key = safe_name(run.id)
        number = 1
        while key in named:
            number += 1
            key = f"{base}-{number}"
        named[key] = run
    return named


def _entry(key: str, run: Run) -> Entry:
    """A run in memory as the catalogue would have it; it was not analysed yet."""
    facts, job = _job(run)
    return Entry(
        folder=key,
        id=values.text(run.id) or "",
        name=values.text(run.name) or "",
        source=values.text(run.source) or "",
        framework=values.text(facts.get("framework")),
        model=values.text(facts.get("model")),
        ranks=run.size,
        hosts=tuple(values.text(host) or "" for host in run.hosts),
        batch_size=values.whole(facts.get("batch_size")),
        synthetic=run.synthetic,
        status=run.status,
        started_at=values.moment(run.started_at),
        collected_at=None,
        bytes=sum(log.size for log in run.logs),
        facts=facts,
        job=job,
        summary=Figures(),
        manifest="",
    )


def _job(run: Run) -> tuple[dict[str, Any], str]:
    facts = job_facts(run)
    try:
        return facts, job_of(facts)
    except (TypeError, ValueError):
        return {}, ""  # facts that no log can hold: a Run that was put together by hand
