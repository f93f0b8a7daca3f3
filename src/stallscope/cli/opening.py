"""What several commands share: opening the runs that were named, with progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from stallscope.errors import StallscopeError
from stallscope.run import Run
from stallscope.runs import open_runs

T = TypeVar("T")

# What is done sooner needs no bar.
_PATIENCE_SECONDS = 2.0


def open_all(sources: Sequence[str], read_as: str | None) -> tuple[list[Run], list[str]]:
    """The runs behind all sources, and a sentence for every source that could not be read."""
    runs: list[Run] = []
    failures: list[str] = []
    for source in with_progress(sources, "reading"):
        try:
            runs += open_runs(source, read_as=read_as)
        except StallscopeError as error:
            failures.append(str(error))
    return runs, failures


def with_progress(items: Sequence[T], label: str) -> Iterable[T]:
    """The items, with a sign of life on a terminal's standard error while they are worked through."""
    with watching(label, len(items)) as watch:
        for done, item in enumerate(items):
            watch(done)
            yield item


@contextmanager
def watching(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A sign of life on a terminal's standard error: from two seconds on a bar, where there are several.

    What it gives is to be called now and then with how many are done.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done: None
    elif total < 2:
        with console.status(f"{label} …"):
            yield lambda _done: None
    else:
        columns = (*Progress.get_default_columns(), MofNCompleteColumn())
        bar = Progress(*columns, console=console, transient=True)
        task = bar.add_task(label, total=total)
        begun = time.monotonic()

        def watch(done: int) -> None:
            bar.update(task, completed=done)
            if not bar.live.is_started and time.monotonic() - begun >= _PATIENCE_SECONDS:
                bar.start()

        try:
            yield watch
        finally:
            bar.stop()
