"""Show a command's progress at the bottom of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TaskID,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.spinner import Spinner
from rich.text import Text

from stallscope.parsers.base import UpdateProgress, ignore_progress

# A bar appears after this time.
_PATIENCE_SECONDS = 2.0

#: The display that is on the terminal.
_shown: ContextVar[_Bars | None] = ContextVar("shown", default=None)


@contextmanager
def show_progress(label: str, total: int) -> Iterator[UpdateProgress]:
    """Show progress on a terminal's standard error: a bar after two seconds, or a spinner for one item.

    Yields a function to call with the number of items done. A nested call adds a line below the
    outer one.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ignore_progress
        return
    # Two displays would write over each other.
    bars = _shown.get() or _Bars(console)
    task = bars.begin_task(label, total)
    try:
        yield lambda done: bars.update(task, completed=done)
    finally:
        bars.end_task(task)


class Advance(Protocol):
    """Reports bytes that were processed, and bytes that were found to process."""

    def __call__(self, new: int, more: int = 0, /) -> None: ...


@contextmanager
def show_bytes(label: str, total: int = 0) -> Iterator[Advance]:
    """Show bytes, throughput and time left on a terminal's standard error, after two seconds."""
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # Output into a pipe must not pass through the bar.
    redirected = sys.stdout.isatty()
    bar = Progress(label, *columns, console=console, transient=True, redirect_stdout=redirected)
    task = bar.add_task("", total=total)
    due = time.monotonic() + _PATIENCE_SECONDS

    def advance(new: int, more: int = 0, /) -> None:
        bar.update(task, advance=new, total=(bar.tasks[task].total or 0) + more)
        if console.is_terminal and not bar.live.is_started and time.monotonic() > due:
            bar.start()

    try:
        yield advance
    finally:
        if bar.live.is_started:
            bar.stop()


class _Bars(Progress):
    """A bar for each task; a spinner if the innermost task has no count."""

    def __init__(self, console: Console) -> None:
        columns = (*Progress.get_default_columns(), MofNCompleteColumn())
        # Output into a pipe must not pass through the display.
        redirected = sys.stdout.isatty()
        super().__init__(*columns, console=console, transient=True, redirect_stdout=redirected)

    def begin_task(self, label: str, total: int) -> TaskID:
        spinner = Spinner("dots", Text(f"{label} …"), style="status.spinner")
        task = self.add_task(label, total=total if total > 1 else None, spinner=spinner)
        if not self.live.is_started:
            _shown.set(self)
            self.start()
        return task

    def end_task(self, task: TaskID) -> None:
        if len(self.task_ids) == 1:
            _shown.set(None)
            self.stop()
        self.remove_task(task)

    def get_renderables(self) -> Iterable[RenderableType]:
        shown = [task for task in self.tasks if _is_due(task)]
        bars = [task for task in shown if task.total is not None]
        if bars:
            yield self.make_tasks_table(bars)
        if shown and shown[-1].total is None:
            yield shown[-1].fields["spinner"]
        if not shown:
            # For a display without lines, rich would leave an empty line.
            yield Text()


def _is_due(task: Task) -> bool:
    return task.total is None or (task.elapsed or 0.0) >= _PATIENCE_SECONDS
