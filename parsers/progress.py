"""Report the progress of long work to any display."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

#: Called from time to time with the number of finished items.
UpdateProgress = Callable[[int], None]

#: Starts a display, given the name of the work and the number of items.
ShowProgress = Callable[[str, int], AbstractContextManager[UpdateProgress]]


@contextmanager
def no_progress(_what: str, _count: int) -> Iterator[UpdateProgress]:
    """Show no progress."""
    yield ignore_progress


def ignore_progress(_done: int) -> None:
    """Ignore an update."""
