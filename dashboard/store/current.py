"""The current list of the runs of all sources, refreshed on request."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from threading import Lock

from stallscope.errors import StallscopeError

from .listing import ListedRun, RunListing
from .run_sources import RunSource, SourceContents


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
            one for number, source in enumerate(self._sources, 1) for one in source.listed(number)
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
