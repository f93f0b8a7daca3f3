"""What is on all shelves, as of the last look."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from stallscope.errors import StallscopeError

from .listing import Listed
from .run_sources import Contents, Shelf


@dataclass(frozen=True)
class Stock:
    """All runs at one moment, those that are only there to be compared with among them."""

    #: Another one for every moment at which something had changed.
    number: int = 0
    by_id: Mapping[str, Listed] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class Stocktaker:
    """Looks at shelves, and reads again only what may have changed."""

    def __init__(self, shelves: Sequence[Shelf]) -> None:
        self._seen = [_Seen(shelf) for shelf in shelves]
        self._lock = Lock()
        self._stock = Stock()
        for seen in self._seen:
            seen.look()
        self._take()

    @property
    def stock(self) -> Stock:
        return self._stock

    def look(self) -> None:
        """Look at all shelves again; one that cannot be read any more stays as it was, with why."""
        with self._lock:
            changed = [seen.changed() for seen in self._seen]
            if any(changed):
                self._take()

    def _take(self) -> None:
        self._stock = Stock(
            self._stock.number + 1,
            {
                one.id: one
                for number, seen in enumerate(self._seen, 1)
                for one in seen.listed(number)
            },
            tuple(problem for seen in self._seen for problem in seen.problems),
        )


class _Seen:
    """A shelf, and what was on it when it was looked at."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._state: Hashable = None
        self._contents = Contents([])
        self._trouble: str | None = None

    @property
    def problems(self) -> Sequence[str]:
        return [*self._contents.problems, *([self._trouble] if self._trouble else [])]

    def look(self) -> None:
        """
        Raises:
            StallscopeError: if the shelf cannot be read.
        """
        self._contents = self._shelf.contents()
        # Reading may have written the catalogue.
        self._state = self._shelf.state()

    def changed(self) -> bool:
        """Look again where there may be something else; whether there was, or it cannot be read."""
        before = self._trouble
        try:
            self._trouble = None
            if self._shelf.state() == self._state:
                return before is not None
            self.look()
        except StallscopeError as error:
            self._trouble = str(error)
            return self._trouble != before
        return True

    def listed(self, number: int) -> Iterator[Listed]:
        """The runs; on every shelf but the first, ids say which one it is."""
        shown = self._shelf.shown
        for key, entry in self._contents.entries:
            # No name of a folder or a run ends like this.
            run_id = key if number == 1 else f"{key}~{number}"
            yield Listed(
                run_id,
                entry,
                self._shelf,
                shown is None or key in shown,
                self._contents.gaps.get(key),
            )
