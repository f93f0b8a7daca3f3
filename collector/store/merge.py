"""Merge collections of one run: ranks may come from another host, and rows may be there twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cache
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.pivot import ROWS, with_log_numbers
from stallscope.arrays.types import Ints
from stallscope.formatting.lists import counted
from stallscope.run import Log, Problem, Run

from .generations import Completions, completions_of, generations_of, with_generations

T = TypeVar("T")
Key = tuple[int, int, int, int]
CompletionsReader = Callable[[pa.Table, int], Completions]


def log_key(log: Log) -> Key:
    """Return a key that identifies a log among all runs of the same id."""
    return log.rank, log.recorded_generation, log.part, log.anchor


def is_same_job(first: Run, second: Run) -> bool:
    """Whether two runs of the same id are one job: they share a log, or have different ranks.

    If a user gives the same id to two jobs, both have a log of the same rank with different starts.
    """
    first_keys = {log_key(log) for log in first.logs}
    second_keys = {log_key(log) for log in second.logs}
    if first_keys & second_keys:
        return True
    places = {key[:3] for key in first_keys} & {key[:3] for key in second_keys}
    return not places


def merge_runs(new: Run, old: Run, completions: CompletionsReader) -> Run:
    """Add the logs, measurements, events and series of the old run that the new run lacks.

    Args:
        completions: returns the completions of each log; see ``completions_by_log``.
    """
    new = replace(
        new,
        input_times=_joined(
            new.input_times,
            old.input_times,
            lambda measurement: (measurement.rank, measurement.began),
        ),
        network_checks=_joined(new.network_checks, old.network_checks, lambda check: check.began),
        # Logs with events are read completely, so the new run has all events of its logs.
        events=_joined(new.events, old.events, lambda event: event.where),
        series=_joined(new.series, old.series, lambda series: series.where),
    )
    known = {log_key(log) for log in new.logs}
    missing = [index for index, log in enumerate(old.logs) if log_key(log) not in known]
    if not missing:
        return new
    logs = (*new.logs, *(old.logs[index] for index in missing))
    of_old = np.full(len(old.logs), -1, np.int32)
    of_old[missing] = np.arange(len(new.logs), len(logs))
    same = np.arange(len(new.logs), dtype=np.int32)
    tables = {
        name: pa.concat_tables(
            [_renumber(getattr(new, name), same), _renumber(getattr(old, name), of_old)]
        )
        for name in ("steps", "intervals")
    }
    generations = np.array(generations_of(logs, completions(tables["steps"], len(logs))), np.int32)
    # Order by generation, like the files of a folder: later attempts come last.
    order = sorted(
        range(len(logs)),
        key=lambda i: (generations[i], logs[i].rank, logs[i].part, logs[i].anchor),
    )
    place = np.empty(len(logs), np.int32)
    place[order] = np.arange(len(logs))
    tables = {
        name: _by_log(
            _renumber(with_generations(table, generations[arrow.numbers(table["log"])]), place)
        )
        for name, table in tables.items()
    }
    tables["steps"], _ = last_attempts(tables["steps"])
    problems = _joined(new.problems, old.problems, str)
    in_order = tuple(replace(logs[i], generation=int(generations[i])) for i in order)
    return replace(new, logs=in_order, problems=problems, **tables)


def _joined(new: tuple[T, ...], old: tuple[T, ...], key: Callable[[T], Hashable]) -> tuple[T, ...]:
    """Add the old objects with keys that no new one has."""
    known = set(map(key, new))
    return (*new, *(record for record in old if key(record) not in known))


def completions_by_log(steps: pa.Table, logs: int) -> Completions:
    """Return the completions of each log from rows in any order, which are sorted on first use.

    Args:
        logs: the number of logs.
    """

    @cache
    def by_log() -> tuple[pa.Table, Ints]:
        rows = _by_log(steps)
        return rows, np.searchsorted(arrow.numbers(rows["log"]), np.arange(logs + 1))

    def completions(log: int) -> tuple[Ints, Ints]:
        rows, starts = by_log()
        return completions_of(rows.slice(starts[log], starts[log + 1] - starts[log]))

    return completions


def _by_log(table: pa.Table) -> pa.Table:
    """Sort the rows by log."""
    whole = table.combine_chunks()
    order = np.argsort(arrow.numbers(whole["log"]), kind="stable")
    return whole.take(arrow.array(order)).combine_chunks()


def _renumber(table: pa.Table, new_index: np.ndarray) -> pa.Table:
    """Replace log numbers by new ones; drop rows of logs without a new number."""
    table = with_log_numbers(table, new_index)
    if (new_index >= 0).all():
        return table
    return table.filter(pc.greater_equal(table["log"], arrow.scalar(0, pa.int32())))


# -- Drop steps that were recorded more than once: by a failed attempt and by the next one --------


def last_attempts(steps: pa.Table) -> tuple[pa.Table, dict[int, int]]:
    """Drop steps that a later log of the same rank and generation recorded again; count them by rank."""
    # Each part is compared with the row before it.
    begins = range(0, steps.num_rows, ROWS)
    if all(_ascend(*_key(steps.slice(max(0, begin - 1), ROWS + 1))) for begin in begins):
        return steps, {}
    key = _key(steps)
    order = np.lexsort([np.arange(steps.num_rows), *key])
    ordered = [column[order] for column in key]
    repeated_below = np.ones(max(0, steps.num_rows - 1), bool)
    for column in ordered:
        repeated_below &= column[1:] == column[:-1]
    dropped = order[:-1][repeated_below]
    if not len(dropped):
        return steps, {}
    keep = np.ones(steps.num_rows, bool)
    keep[dropped] = False
    ranks, counts = np.unique(key[1][dropped], return_counts=True)
    return (
        steps.filter(arrow.array(keep)).combine_chunks(),
        dict(zip(ranks.tolist(), counts.tolist(), strict=True)),
    )


def repeat_problems(repeated: Mapping[int, int]) -> list[Problem]:
    """Return a problem per rank with dropped steps."""
    return [
        Problem(
            f"rank {rank}",
            f"more than one attempt recorded {counted(count, 'step')}; the last attempt counts",
        )
        for rank, count in sorted(repeated.items())
    ]


def _key(steps: pa.Table) -> list[Ints]:
    return [arrow.numbers(steps[name]) for name in ("step", "rank", "generation")]


def _ascend(step: Ints, rank: Ints, generation: Ints) -> bool:
    """Whether the rows ascend strictly, as with one log per rank; then no step is recorded twice."""
    ascending = step[1:] > step[:-1]
    for column in (rank, generation):
        ascending = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & ascending)
    return bool(ascending.all())
