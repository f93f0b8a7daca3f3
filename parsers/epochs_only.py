"""Logs with the durations of epochs and without steps.

Their runs have no steps, only intervals of the kind ``epoch``, and facts that name the source and its
precision. They are used only if no log has steps.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.types import Ints
from stallscope.collector.safe_names import safe_name
from stallscope.errors import NotFoundError
from stallscope.run import Log, Problem

from .base import Parsed
from .rank_names import rank_in, ranks_in
from .streams import one_of_streams
from .tables import INTERVAL_ROWS, STEP_ROWS, table_of
from .timestamps import Timestamp
from .world_size import FROM_NAME, FROM_WORDS, in_words, labelled_ranks, size_facts, size_of_files

# Facts about a run that MLflow has for printed logs, too.
_OF_THE_RUN = (
    "run_name",
    "model",
    "optimizer",
    "learning_rate",
    "batch_size",
    "size",
    "anchor",
    "steps_per_epoch",
    "whole_job",
)
# Common names for the file or folder of a job on 8 processes: np8, np-8, ranks-8, 8-ranks, 8gpus.
_SIZE_IN_NAME = re.compile(
    r"(?<![a-z0-9])(?:(?:np|ranks|processes|procs|workers|gpus)[-_=. ]?(?P<after>\d{1,6})(?!\d)"
    r"|(?P<before>\d{1,6})[-_. ]?(?:ranks?|processe?s?|procs?|workers?|gpus?)(?![a-z0-9]))",
    re.IGNORECASE,
)
# Finer clocks than that are not told apart.
_MICROSECOND_MS = 1e-3

_NUMBER = re.compile(r"\d+")
_GAP = re.compile(r"^[._-]+(?:log|txt|out|err)$|[._-]+(?=\.(?:log|txt|out|err)$)")

# The columns of an interval in such logs: the rank, the kind, the epoch, its start and its end.
_Row = tuple[int, str, "int | None", int, int]


class Epoch(NamedTuple):
    """An epoch, in nanoseconds on the log's clock."""

    #: Counted from 0.
    number: int
    begin: int
    end: int


def epochs_log(
    path: str,
    *,
    facts: Mapping[str, Any],
    epochs: Sequence[Epoch],
    ended: bool,
    size: int = 0,
    rank: int = 0,
    part: int = 0,
    run_id: str = "",
    end: int | None = None,
    validations: Iterable[tuple[int | None, int, int]] = (),
    problems: Iterable[Problem] = (),
) -> Parsed:
    """Make a log of epochs.

    Args:
        run_id: where the log knows it; otherwise it is made of the place.
        end: nanoseconds on the log's clock at which the job ended, where that is known.
        validations: the epoch of each, where that is known, its start and its end.
    """
    rows = _rows(rank, epochs)
    rows += [(rank, "validation", *one) for one in validations]
    if end is not None:
        rows.append((rank, "end", None, end, end))
    return Parsed(
        log=Log(path, rank, 0, part, facts, ended, size),
        run_id=run_id,
        steps=_no_rows(STEP_ROWS),
        intervals=_table(rows),
        problems=tuple(problems),
    )


def in_one_file(logs: Sequence[Parsed], size: int) -> Parsed:
    """Return the first log of a file of this size, with the file's other logs as ``more``."""
    first, *more = logs
    return replace(first, log=replace(first.log, size=size), more=tuple(more))


def with_epochs(logs: Sequence[Parsed], epochs: Sequence[Sequence[Epoch]]) -> list[Parsed]:
    """Add their epochs to logs that were made without them.

    Their tables are pieces of one: where every second line begins a fit, making one for each takes long.
    """
    table = _table(
        [row for log, own in zip(logs, epochs, strict=True) for row in _rows(log.log.rank, own)]
    )
    ends = list(accumulate(map(len, epochs)))
    return [
        replace(log, intervals=table.slice(end - len(own), len(own)))
        for log, own, end in zip(logs, epochs, ends, strict=True)
    ]


def with_end(log: Parsed, end: int) -> Parsed:
    """Add the end of the job, in nanoseconds on the log's clock."""
    last = _table([(log.log.rank, "end", None, end, end)])
    return replace(log, intervals=pa.concat_tables([log.intervals, last]))


def with_words(path: str, logs: Sequence[Parsed], data: bytes) -> list[Parsed]:
    """Add the number of ranks to a file's logs, and their rank, if the file says them in words.

    What a program says of itself is trusted more than labels, names and numbers of files.
    """
    if all(one.log.facts.get("size_from") == FROM_WORDS for one in logs):
        return [*logs]
    said = in_words(data)
    if said.size is None:
        labelled = size_facts(None, labelled_ranks(data))
        return [one if "size" in one.log.facts else _with_facts(one, labelled) for one in logs]
    facts = size_facts(said.size)
    ranks = {one.log.rank for one in logs}
    if said.rank is None or ranks != {0} or rank_in(path)[0] is not None:
        return [_with_facts(one, facts) for one in logs]
    facts["rank_from"] = FROM_WORDS
    return [_of_rank(_with_facts(one, facts), said.rank) for one in logs]


def _with_facts(one: Parsed, facts: Mapping[str, Any]) -> Parsed:
    return replace(one, log=replace(one.log, facts={**one.log.facts, **facts}))


def _of_rank(one: Parsed, rank: int) -> Parsed:
    """Return the log as that of another rank."""
    column = arrow.array(np.full(one.intervals.num_rows, rank, np.int32))
    at = one.intervals.schema.get_field_index("rank")
    intervals = one.intervals.set_column(at, "rank", column)
    return replace(one, log=replace(one.log, rank=rank), intervals=intervals)


def epochs_table(rank: int, number: Ints, begin: Ints, end: Ints) -> pa.Table:
    """Make the intervals of a rank's epochs from columns like those of ``Epoch``."""
    # Arrow would copy one of its arrays value by value.
    kind = pa.repeat(arrow.scalar("epoch", INTERVAL_ROWS.field("kind").type), len(number))
    return _table_of(np.full(len(number), rank), kind, number, begin, end)


def windows_table(
    rank: int,
    step: Ints,
    epoch: Ints | None,
    begin: Ints,
    end: Ints,
    steps: Ints,
    data: Ints | None,
) -> pa.Table:
    """Make the intervals of a rank's windows of steps from columns.

    Args:
        rank: the rank.
        step: the step after each window.
        epoch: the epoch that it is of, as printed.
        begin: its start, nanoseconds on the log's clock.
        end: its end.
        steps: its number of steps.
        data: the nanoseconds for which its steps waited for data.
    """
    count = len(step)
    known = {"epoch": epoch, "data": data}
    kind = pa.repeat(arrow.scalar("window", INTERVAL_ROWS.field("kind").type), count)
    columns = {"rank": np.full(count, rank), "kind": kind, "step": step, "steps": steps}
    columns |= {"generation": np.zeros(count, np.int64), "begin": begin, "end": end}
    columns |= {name: own for name, own in known.items() if own is not None}
    return table_of(INTERVAL_ROWS, columns)


def _rows(rank: int, epochs: Sequence[Epoch]) -> list[_Row]:
    return [(rank, "epoch", *epoch) for epoch in epochs]


def _table(rows: Sequence[_Row]) -> pa.Table:
    # As columns: some logs have an epoch on every line.
    return _table_of(*zip(*rows, strict=True)) if rows else _no_rows(INTERVAL_ROWS)


def _table_of(rank: Any, kind: Any, epoch: Any, begin: Any, end: Any) -> pa.Table:
    count = len(rank)
    columns = {"generation": np.zeros(count, np.int64), "rank": rank, "kind": kind}
    return table_of(INTERVAL_ROWS, columns | {"epoch": epoch, "begin": begin, "end": end})


@cache
def _no_rows(schema: pa.Schema) -> pa.Table:
    # Making any Arrow table loads pandas: only when one is needed.
    return arrow.empty_table(schema)


def size_in(name: str) -> int | None:
    """Return the number of processes in a name (``vgg16-np8``, ``8-ranks``), None without one."""
    found = _SIZE_IN_NAME.search(name)
    return None if found is None else int(found["after"] or found["before"]) or None


def rounded_to(milliseconds: float) -> str:
    """Name a precision: ``the second``, ``the millisecond``, ``78 ms``."""
    if milliseconds >= 1000:
        return "the second"
    if milliseconds <= _MICROSECOND_MS:
        return "the microsecond"
    return "the millisecond" if milliseconds <= 1 else f"{milliseconds:.3g} ms"


def clock_facts(timestamp: Timestamp | None, zero: int) -> dict[str, Any]:
    """Return the facts about the clock of lines with such a timestamp; times count from ``zero``."""
    if timestamp is None:
        return {"clock": "none: durations one after another"}
    # The difference of two timestamps that were rounded down is off by less than that either way.
    known = {"stamp_precision_ms": timestamp.resolution_ns / 1e6}
    if timestamp.zone_known:
        return known | {
            "clock": "stamps of the lines",
            "anchor": {"monotonic_ns": 0, "wall_ns": zero},
        }
    began = Timestamp(zero, False, timestamp.resolution_ns)
    local = {
        "clock": f"stamps of the lines, from {began.text} of an unknown zone",
        "began_local": began.text,
    }
    if timestamp.year_known:
        return known | local
    clock = f"{local['clock']}; the year is assumed, the lines have none"
    return known | local | {"clock": clock, "year_assumed": True}


def unused_epoch_logs(found: Iterable[tuple[str, Parsed]]) -> list[Problem]:
    """Report logs of epochs that are not used because logs of steps are there."""
    # MLflow's metrics of a run always lie beside its artifacts: no reason to report them.
    paths = dict.fromkeys(log.log.path for _, log in found if not log.run_id)
    return [
        Problem(path, "knows how long epochs took; left alone, as logs of steps are here")
        for path in paths
    ]


def as_runs(found: Sequence[tuple[str, Parsed]]) -> list[Parsed]:
    """Give logs of epochs the ids of their runs.

    What was printed is finer than MLflow's metrics: beside it MLflow only describes the run.

    Args:
        found: logs with the places of their files.

    Raises:
        NotFoundError: if all there is are MLflow's metrics, and they have no times.
    """
    by_place: dict[tuple[str, int | None], list[Parsed]] = defaultdict(list)
    by_run: dict[str, list[Parsed]] = defaultdict(list)
    places = ranks_in(where for where, _ in found)
    found, jobs = one_of_streams(found, places)
    sized = [(where, _sized(jobs[where], log)) for where, log in found]
    families = _families(sized)
    ranks: dict[str, set[int]] = defaultdict(set)
    files: dict[str, set[int]] = defaultdict(set)
    for where, log in found:
        ranks[where].add(log.log.rank)
        rank = places[where].rank
        if rank is not None:
            files[jobs[where]].add(rank)
    for where, log in sized:
        if log.run_id:
            by_run[log.run_id].append(log)
            continue
        rank, place = places[where].rank, jobs[where]
        # Only the files next to a file may tell its rank.
        if rank is not None and ranks[where] == {0} and "rank_from" not in log.log.facts:
            log = _of_rank(log, rank)
        log = _with_facts(log, size_of_files(files[place], log.log.facts))
        by_place[families.get(where, place), log.log.facts.get("repeat")].append(log)
    runs = [log for logs in by_run.values() for log in logs if "known_from" in log.log.facts]
    if len(by_run) == 1 and by_place:
        ((mlflow, *_),) = by_run.values()
        most = max(by_place, key=lambda place: sum(_epochs(log) for log in by_place[place]))
        runs = [_as_mlflow_knows_it(log, mlflow) for log in by_place.pop(most)]
    named = [
        named_by_place(log, place, again="" if repeat is None else f"-repeat-{repeat}")
        for (place, repeat), logs in by_place.items()
        for log in logs
    ]
    if not runs and not named and by_run:
        raise NotFoundError(next(iter(by_run.values()))[0].problems[0].what)
    return [*runs, *named]


def _families(found: Iterable[tuple[str, Parsed]]) -> dict[str, str]:
    """Return the common place of files that say in words which rank of one job they are.

    Their names differ in one number only, and each is another rank of as many.
    """
    members: dict[tuple[str, object], dict[int, str]] = defaultdict(dict)
    shared: set[tuple[str, object]] = set()
    for where, log in found:
        if log.log.facts.get("rank_from") != FROM_WORDS:
            continue
        for place in _without_a_number(where):
            family = place, log.log.facts.get("size")
            if members[family].setdefault(log.log.rank, where) != where:
                shared.add(family)
    return {
        where: family[0]
        for family, ranks in members.items()
        if family not in shared and len(ranks) > 1
        for where in ranks.values()
    }


def _without_a_number(where: str) -> Iterator[str]:
    """Yield a path without each of the numbers in its last part."""
    first = where.rfind("/") + 1
    for number in _NUMBER.finditer(where, first):
        yield f"{where[: number.start()]}#{where[number.end() :]}"


def _sized(place: str, log: Parsed) -> Parsed:
    """Add the number of processes in the name of the run, the file or the folder."""
    parts = [part for part in place.split("/") if part]
    names = [str(log.log.facts.get("run_name") or ""), *reversed(parts[-2:])]
    size = next((size for name in names if (size := size_in(name)) is not None), None)
    if size is None or "size" in log.log.facts or log.log.facts.get("size_varies"):
        return log
    return _with_facts(log, {"size": size, "size_from": FROM_NAME})


def named_by_place(log: Parsed, place: str, otherwise: str = "output", again: str = "") -> Parsed:
    """Give a log an id and a name made of its place: the log names no run.

    Args:
        otherwise: the start of the id where the place has no name.
        again: the end of the id, which tells runs at one place apart.
    """
    parts = [part for part in place.split("/") if part]
    key = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    run_id = f"{safe_name(parts[-1]) if parts else otherwise}-{key}{again}"
    facts = {"run_name": "/".join(filter(None, map(_without_gaps, parts[-2:]))), **log.log.facts}
    return replace(log, run_id=run_id, log=replace(log.log, facts=facts))


def _without_gaps(name: str) -> str:
    """Close the gap that a rank leaves in a file's name: ``train-.log`` and ``.log``."""
    return _GAP.sub("", name)


def _as_mlflow_knows_it(log: Parsed, mlflow: Parsed) -> Parsed:
    known = {name: mlflow.log.facts[name] for name in _OF_THE_RUN if name in mlflow.log.facts}
    ends = mlflow.intervals.filter(arrow.equal(mlflow.intervals["kind"], "end"))
    rank = arrow.array(np.full(ends.num_rows, log.log.rank, np.int32))
    ends = ends.set_column(ends.schema.get_field_index("rank"), "rank", rank)
    return replace(
        log,
        run_id=mlflow.run_id,
        log=replace(log.log, facts={**known, **log.log.facts}, ended=mlflow.log.ended),
        intervals=pa.concat_tables([log.intervals, ends]),
    )


def _epochs(log: Parsed) -> int:
    return int(log.intervals.num_rows)
