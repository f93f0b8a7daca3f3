"""Print one line per run of a place with several, and the command that shows one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stallscope.analysis.gains.what_if import WORTH_MENTIONING
from stallscope.collector.run_names import NamedRun
from stallscope.formatting.numbers import amount, faster_in_short
from stallscope.formatting.plain import plain
from stallscope.reports.index.index import IndexLine


def print_list(lines: Sequence[IndexLine], place: str) -> None:
    """Print the runs, and the command that reports on the first.

    Args:
        place: the folder or store that has them.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("run", overflow="fold")
    for title in ("ranks", "steps", "step"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    table.add_column("gain", justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*(Text(plain(text), overflow="fold") for text in _cells(line)))
    console = Console()
    console.print(table)
    first = lines[0]
    console.print(Text(plain(f"for one run: stallscope report {place}#{first.id}"), style="dim"))


def _cells(line: IndexLine) -> tuple[str, ...]:
    return (
        NamedRun(line.id, line.name).title,
        f"{line.ranks:,}",
        "" if line.steps is None else f"{line.steps:,}",
        "" if line.step_ms is None else amount(line.step_ms, "ms"),
        line.said,
        _gain(line),
    )


def _gain(line: IndexLine) -> str:
    if line.speedup is None or line.speedup < WORTH_MENTIONING:
        return ""
    return f"{'≤ ' if line.bound else ''}{faster_in_short(line.speedup, line.speedup_ci95)}"
