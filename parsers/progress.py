"""Looking on while something takes its time: who works tells how far it is, and knows no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

#: To be called at times with how many are done.
Watch = Callable[[int], None]

#: Given what is done, and of how many, what is to be told how many of them are done.
Watching = Callable[[str, int], AbstractContextManager[Watch]]


@contextmanager
def unwatched(_what: str, _count: int) -> Iterator[Watch]:
    """Show no progress."""
    yield not_told


def not_told(_done: int) -> None:
    """Ignore the progress."""
