"""Open the runs that a command names, and show progress."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from stallscope.collector.run_names import RunAddress
from stallscope.errors import StallscopeError
from stallscope.opening import open_run, open_runs, place_warnings
from stallscope.run import Run

from .bars import show_progress
from .main import print_warnings

T = TypeVar("T")


def open_all(
    sources: Sequence[str | RunAddress], read_as: str | None
) -> tuple[list[Run], list[str]]:
    """Return the runs of all sources, and an error message for every source that cannot be read.

    What is in none of their runs is printed.
    """
    runs: list[Run] = []
    failures: list[str] = []
    for source in with_progress(sources, "reading"):
        try:
            runs += open_runs(source, read_as=read_as, show_progress=show_progress)
        except StallscopeError as error:
            failures.append(str(error))
    print_warnings(place_warnings(runs))
    return runs, failures


def open_one(source: str, read_as: str | None = None, known: Iterable[str] = ()) -> Run:
    """Return the one run of a source, and print what is not in it.

    Args:
        known: warnings that were printed.

    Raises:
        StallscopeError: see ``open_run``.
    """
    with show_progress("reading", 1):
        run = open_run(source, read_as=read_as, show_progress=show_progress)
    print_warnings([warning for warning in run.place_warnings if warning not in known])
    return run


def with_progress(items: Sequence[T], label: str) -> Iterable[T]:
    """Yield the items, and show progress on a terminal's standard error."""
    with show_progress(label, len(items)) as update:
        for done, item in enumerate(items):
            update(done)
            yield item
