"""Show a command's progress at the bottom of a terminal, in one display."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console, RenderableType
from rich.progress import MofNCompleteColumn, Progress, Task, TaskID
from rich.spinner import Spinner
from rich.text import Text

from stallscope.parsers.progress import UpdateProgress, ignore_progress

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
