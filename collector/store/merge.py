"""Two collections of one run as one: ranks that came from another host, logs that have gone since."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.run import Event, Log, MeasuredInput, Run, Series

from .deduplicate import last_attempts

Key = tuple[int, int, int, int]


def key(log: Log) -> Key:
    """What tells a log from all others of a run of the same id, wherever it lies."""
    return log.rank, log.generation, log.part, log.anchor


def is_one_job(one: Run, other: Run) -> bool:
    """Whether two runs of the same id are one job: they share a log, or each has ranks of its own.

    People give the same id twice; then both have a log of the same rank, begun at different times.
    """
    own, others = {key(log) for log in one.logs}, {key(log) for log in other.logs}
    if own & others:
        return True
    places = {place[:3] for place in own} & {place[:3] for place in others}
    return not places


def merged(new: Run, old: Run) -> Run:
    """The new run, with logs, measurements, events and series of the old one that it lacks."""
    new = replace(
        new,
        input_times=_measurements(new, old),
        events=_events(new, old),
        series=_series(new, old),
    )
    there = {key(log) for log in new.logs}
    lacking = [index for index, log in enumerate(old.logs) if key(log) not in there]
    if not lacking:
        return new
    logs = (*new.logs, *(old.logs[index] for index in lacking))
    # Generation by generation, as files of one folder are read: later attempts come last.
    order = sorted(
        range(len(logs)),
        key=lambda i: (logs[i].generation, logs[i].rank, logs[i].part, logs[i].anchor),
    )
    place = np.empty(len(logs), np.int32)
    place[order] = np.arange(len(logs))
    of_old = np.full(len(old.logs), -1, np.int32)
    of_old[lacking] = place[len(new.logs) :]
    tables = {
        name: _by_log(
            _renumbered(getattr(new, name), place[: len(new.logs)]),
            _renumbered(getattr(old, name), of_old),
        )
        for name in ("steps", "intervals")
    }
    tables["steps"], _ = last_attempts(tables["steps"])
    known = {str(problem) for problem in new.problems}
    problems = (*new.problems, *(one for one in old.problems if str(one) not in known))
    return replace(new, logs=tuple(logs[i] for i in order), problems=problems, **tables)


def _measurements(new: Run, old: Run) -> tuple[MeasuredInput, ...]:
    there = {(one.rank, one.began) for one in new.input_times}
    gone = (one for one in old.input_times if (one.rank, one.began) not in there)
    return (*new.input_times, *gone)


def _events(new: Run, old: Run) -> tuple[Event, ...]:
    # A log that tells events is read as a whole: what the new run has of it is all of it.
    told = {event.where for event in new.events}
    return (*new.events, *(event for event in old.events if event.where not in told))


def _series(new: Run, old: Run) -> tuple[Series, ...]:
    told = {series.where for series in new.series}
    return (*new.series, *(series for series in old.series if series.where not in told))


def _by_log(*tables: pa.Table) -> pa.Table:
    """Rows of all tables, log by log."""
    whole = pa.concat_tables(tables).combine_chunks()
    order = np.argsort(whole["log"].to_numpy(), kind="stable")
    return whole.take(pa.array(order)).combine_chunks()


def _renumbered(table: pa.Table, place: np.ndarray) -> pa.Table:
    """A table with its logs' new numbers; rows of logs that have none are left out."""
    numbers = place[table["log"].to_numpy()]
    table = table.set_column(table.schema.get_field_index("log"), "log", pa.array(numbers))
    return table if (numbers >= 0).all() else table.filter(pc.greater_equal(table["log"], 0))
