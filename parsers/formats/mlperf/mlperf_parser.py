"""Make a log of each rank from its events."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.errors import UnreadableError
from stallscope.run import Log, Problem

from ...base import Parsed, Parser
from ...epochs_only import clock_facts, epochs_log, in_one_file, rounded_to
from ...lines.timestamps import Timestamp, zones_between
from ...rank_names import FROM_TEXT, labelled_ranks, rank_in, size_facts, stated_ranks
from . import mlperf_marks
from .mlperf_lines import LINE
from .mlperf_marks import Fit, JobSettings, Logged, disagree, epochs_per_ns, logged

KNOWN_FROM = "what MLPerf's logger printed"
# Shorter epochs give no precise step time.
_FEWEST_STEPS = 5
_DISAGREE = (
    "the samples of an epoch and the throughput that are logged disagree; step times are left out"
)
_MIXED = (
    "several ranks print into this file without labels: spans last from the first to the last rank"
)
_NO_STEPS = "a throughput is logged without numbers of steps or samples; its unit is unknown"

# A launcher stamps lines when it receives them.
_LATER_NS = 5 * 10**9
_CLOCK = "MLPerf's times of epochs, and durations of steps one after another in each of them"


class MlperfParser(Parser):
    name: ClassVar[str] = "mlperf"
    title: ClassVar[str] = "logs of MLPerf"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False
    reads_stated_ranks = True
    looks_further: ClassVar[bool] = True
    # Programs on many nodes print megabytes before their first step.
    gives_way: ClassVar[bool] = True

    def recognises(self, file_name: str, head: bytes) -> bool:
        return LINE.search(head) is not None

    def parse(self, path: str, data: bytes) -> Parsed:
        mlperf = logged(data)
        starts = [fit.first_ns for marks in mlperf.ranks.values() for fit in marks.trainings]
        zero = min((ns for ns in starts if ns is not None), default=None)
        if zero is None:
            raise UnreadableError(f"{path}: MLPerf's lines have no start and end of anything")
        by_path, stated = rank_in(path)[0], stated_ranks(data)
        own_lines = {rank for rank in mlperf.ranks if rank is not None}
        launched = own_lines.union(labelled_ranks(data))
        facts = {"known_from": KNOWN_FROM, **_job_facts(mlperf.settings, stated.size, launched)}
        if None in mlperf.ranks and by_path is None and stated.rank is not None:
            facts["rank_from"] = FROM_TEXT
        file_rank = by_path if by_path is not None else stated.rank or 0
        logs = [
            _log(path, file_rank if rank is None else rank, part, fit, zero, facts, mlperf)
            for rank, marks in sorted(mlperf.ranks.items(), key=lambda pair: pair[0] or 0)
            for part, fit in enumerate(marks.trainings)
        ]
        return in_one_file(logs, len(data))


def _job_facts(settings: JobSettings, stated: int | None, ranks: Collection[int]) -> dict[str, Any]:
    """Return the facts of the job.

    Args:
        settings: the settings in events.
        stated: the number of ranks in the log's text.
        ranks: the ranks that launchers have labelled.
    """
    facts = size_facts(stated, ranks, settings.size)
    batch = settings.global_batch
    if batch is not None and "size" in facts and batch % facts["size"] == 0:
        facts["batch_size"] = batch // facts["size"]
    return facts | settings.facts


def _log(
    path: str,
    rank: int,
    part: int,
    fit: Fit,
    zero: int,
    facts: Mapping[str, Any],
    mlperf: Logged,
) -> Parsed:
    resolution = max(marks.resolution_ns for marks in mlperf.ranks.values())
    windows = mlperf_marks.windows(fit, mlperf.settings.global_batch, resolution)
    timed = windows[0].facts if windows else _sample_facts(fit, mlperf.settings)
    known = {
        **facts,
        **clock_facts(Timestamp(zero, True, resolution), zero),
        **_precision_facts(fit, resolution),
        **(timed or {}),
    }
    if timed is None:
        known.pop("training_samples", None)
    if fit.single_epochs:
        known["first_epoch"] = min(fit.single_epochs).number - fit.first
    tables = [] if windows is None else [mlperf_marks.table_of(rank, *windows, zero)]
    return epochs_log(
        path,
        rank=rank,
        part=part,
        facts=known,
        epochs=fit.epochs_since(zero),
        ended=fit.stop is not None,
        end=None if fit.stop is None else max(fit.stop - zero, 0),
        validations=fit.validations_since(zero),
        tables=tables,
        problems=[Problem(path, what) for what in _problems(fit, timed)],
    )


def _precision_facts(fit: Fit, resolution_ns: int) -> dict[str, Any]:
    """Return the precision of times without numbers of steps, as facts."""
    to = rounded_to(resolution_ns / 1e6)
    if fit.single_epochs:
        return {"precision": f"epochs, to {to}", "epoch_precision_ms": resolution_ns / 1e6}
    return {"precision": f"blocks of epochs, to {to}" if fit.blocks else f"the whole run, to {to}"}


def _sample_facts(fit: Fit, settings: JobSettings) -> dict[str, Any] | None:
    """Return the step time by the samples of steps and epochs, as facts; None if these are wrong."""
    epochs = epochs_per_ns(fit, settings)
    if epochs is None or settings.samples is None:
        return {}
    if disagree(fit, settings):
        return None
    count = settings.samples / settings.global_batch if settings.global_batch else 0
    if count < _FEWEST_STEPS:
        return {}
    # The last batch may be smaller or missing: an epoch may have one step more or less.
    step_ms = 1 / (epochs * count * 1e6)
    return {"step_ms": step_ms, "step_precision_ms": step_ms / count}


def _problems(fit: Fit, timed: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield notes on what is unknown.

    Args:
        fit: the training.
        timed: the facts about its steps; None if samples and throughput disagree.
    """
    if fit.mixed:
        yield _MIXED
    if fit.blocks and not fit.single_epochs:
        yield "blocks are logged, and not how long each epoch took"
    if timed is None:
        yield _DISAGREE
    elif fit.throughputs and not timed:
        yield _NO_STEPS


# -- Complete logs of printed steps with MLPerf's events in the same file -------------------------


def completed(logs: Sequence[Parsed], mlperf: Logged, zero: int) -> list[Parsed]:
    """Add evaluations and the end of the job to logs, and the exact epochs, on their clocks.

    Args:
        logs: the logs of a file.
        mlperf: MLPerf's events in the file.
        zero: the timestamp of lines at which the logs' clocks are 0, nanoseconds.
    """
    return [_completed(log, mlperf, zero) for log in logs]


def _completed(log: Parsed, mlperf: Logged, zero: int) -> Parsed:
    marks = mlperf.ranks.get(log.log.rank, mlperf.ranks.get(None))
    if marks is None or len(marks.trainings) != 1 or not log.intervals.num_rows:
        return log
    (fit,) = marks.trainings
    log = _in_epochs(log, fit)
    if disagree(fit, mlperf.settings):
        known_otherwise = {n: v for n, v in log.log.facts.items() if n != "training_samples"}
        log = replace(log, log=replace(log.log, facts=known_otherwise))
    facts = _on_known_clock(log, fit, zero)
    if facts is None:
        return log
    intervals = log.intervals
    if fit.single_epochs:
        # Epochs between lines contain their evaluations, and the last one has no end.
        intervals = intervals.filter(pc.invert(arrow.equal(intervals["kind"], "epoch")))
        facts |= {
            "epoch_precision_ms": 1.0,
            "first_epoch": min(fit.single_epochs).number - fit.first,
        }
    known = replace(log.log, facts=facts, ended=fit.stop is not None)
    return replace(log, log=known, intervals=pa.concat_tables([intervals, _intervals(known, fit)]))


def _intervals(log: Log, fit: Fit) -> pa.Table:
    zero = log.wall_minus_monotonic
    return epochs_log(
        log.path,
        rank=log.rank,
        facts={},
        epochs=fit.epochs_since(zero),
        ended=False,
        end=None if fit.stop is None else fit.stop - zero,
        validations=fit.validations_since(zero),
    ).intervals


def _in_epochs(log: Parsed, fit: Fit) -> Parsed:
    """Move steps without times of day to the starts of MLPerf's epochs, if lines have epochs.

    Returns:
        The same log if that is not possible.
    """
    windows = log.intervals
    begins = {epoch.number - fit.first: epoch.begin for epoch in fit.single_epochs}
    if log.log.has_wall_clock or "began_local" in log.log.facts or windows["epoch"].null_count:
        return log
    number, begin, end = (arrow.numbers(windows[name]) for name in ("epoch", "begin", "end"))
    numbers, firsts, epoch = np.unique(number, return_index=True, return_inverse=True)
    if not begins or not set(numbers.tolist()) <= begins.keys():
        return log
    zero = min(begins.values())
    later = (
        np.array([begins[epoch_number] for epoch_number in numbers.tolist()]) - zero - begin[firsts]
    )
    moved = {"begin": begin + later[epoch], "end": end + later[epoch]}
    for name, values in moved.items():
        at = windows.schema.get_field_index(name)
        windows = windows.set_column(at, windows.schema.field(at), arrow.array(values))
    clock = {"clock": _CLOCK, "anchor": {"monotonic_ns": 0, "wall_ns": zero}}
    return replace(log, log=replace(log.log, facts={**log.log.facts, **clock}), intervals=windows)


def _on_known_clock(log: Parsed, fit: Fit, zero: int) -> dict[str, Any] | None:
    """Return a log's facts with the zone of its clock; None if it has no clock or zone.

    Only in one zone all lines lie between MLPerf's start and end.
    """
    facts = dict(log.log.facts)
    if log.log.has_wall_clock:
        return facts
    if "began_local" not in facts or fit.start is None or fit.stop is None:
        return None
    begin = zero + int(pc.min(log.intervals["begin"]).as_py())
    end = zero + int(pc.max(log.intervals["end"]).as_py())
    zones = zones_between(begin, end, fit.start - _LATER_NS, fit.stop + _LATER_NS)
    if len(zones) != 1:
        return None
    known = {name: value for name, value in facts.items() if name != "began_local"}
    return known | {
        "clock": "stamps of the lines, in the zone that MLPerf's times tell",
        "anchor": {"monotonic_ns": 0, "wall_ns": zero - zones[0]},
    }
