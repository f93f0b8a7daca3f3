"""Make a log of each process with steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.types import Ints
from stallscope.errors import UnreadableError
from stallscope.run import Log, Problem

from ...base import Contents, Parsed, Parser
from ...rank_names import rank_in
from ...tables import INTERVAL_ROWS, STEP_ROWS, table_of
from .spans import SPAN, StepSpans, trace_in
from .steps import Between, Steps, epochs_of, steps_of, without_evaluations

KNOWN_FROM = "traces of DFTracer"

_START = re.compile(rb'[\s\[]{0,16}\{"(?:id|name)":')
_RANK = re.compile(
    rb'"name":"PR"[^\n]{0,80}?"pid":"?(\d{1,10})\b[^\n]{0,200}?"name":"rank","value":"?(\d{1,6})\b'
)
# DFTracer's names for files of ranks: trace-3-of-8.pfw.
_IN_NAME = re.compile(r"(?:^|[/._-])(\d{1,6})-of-(\d{1,6})(?![0-9])")
_SINCE_1970_NS = 10**18
_NUMBERED = "the trace has no ranks of its processes; they are numbered in the order of their ids"


class DftracerParser(Parser):
    name: ClassVar[str] = "dftracer"
    title: ClassVar[str] = "traces of DFTracer"
    suffix: ClassVar[str] = ".pfw"

    def recognises(self, file_name: str, head: bytes) -> bool:
        return _START.match(head) is not None and SPAN.search(head) is not None

    def parse(self, path: str, data: bytes) -> Parsed:
        trace = trace_in(data)
        steps = {
            pid: process_steps
            for pid in trace.processes
            if (process_steps := steps_of(trace, pid)) is not None
        }
        if not steps:
            contents = trace.summary or "none"
            raise UnreadableError(
                f"{path}: a trace of DFTracer without a loop over batches; its spans: {contents}"
            )
        ranks, problems = _ranks(path, data, [*steps])
        in_name = _IN_NAME.search(path)
        size = int(in_name[2]) if in_name else None
        whole = data.rstrip().endswith((b"]", b"}"))
        first, *more = (
            _log(path, trace, pid, rank, steps[pid], {"size": size}, ended=whole)
            for pid, rank in ranks.items()
        )
        log = replace(first.log, size=len(data))
        return replace(first, log=log, more=tuple(more), problems=problems)

    def read(self, path: str, data: bytes) -> Contents:
        parsed = self.parse(path, data)
        return Contents((parsed, *parsed.more), is_trace=True)


def _ranks(
    path: str, data: bytes, processes: Sequence[int]
) -> tuple[Mapping[int, int], tuple[Problem, ...]]:
    """Return the rank of each process, and a problem if ranks are unknown."""
    stated = {int(match[1]): int(match[2]) for match in _RANK.finditer(data)}
    if all(pid in stated for pid in processes):
        return {pid: stated[pid] for pid in processes}, ()
    if len(processes) == 1:
        in_name = _IN_NAME.search(path)
        rank = int(in_name[1]) if in_name else rank_in(path).rank
        return {processes[0]: rank or 0}, ()
    numbered = {pid: rank for rank, pid in enumerate(processes)}
    known = [*numbered.values()] == [*numbered]
    return numbered, () if known else (Problem(path, _NUMBERED),)


def _log(
    path: str,
    trace: StepSpans,
    pid: int,
    rank: int,
    steps: Steps,
    known: Mapping[str, Any],
    *,
    ended: bool,
) -> Parsed:
    steps, evaluations = without_evaluations(trace, pid, steps)
    epochs = epochs_of(trace, pid)
    start = int(steps.begin[0])
    facts: dict[str, Any] = {**known, "known_from": KNOWN_FROM, "host": trace.hosts.get(pid)}
    if start > _SINCE_1970_NS:
        facts["anchor"] = {"monotonic_ns": start, "wall_ns": start}
    facts = {name: value for name, value in facts.items() if value is not None}
    return Parsed(
        log=Log(path, rank, 0, 0, facts, ended),
        run_id="",
        steps=_steps_table(rank, steps, epochs),
        intervals=_intervals_table(rank, steps, epochs, evaluations),
    )


def _steps_table(rank: int, steps: Steps, epochs: Between) -> pa.Table:
    count = len(steps.begin)
    epoch = _epochs(steps, epochs)
    columns = {
        "generation": np.zeros(count, np.int32),
        "rank": np.full(count, rank),
        "step": np.arange(count),
        "epoch": arrow.array(epoch, null=epoch < 0),
        "begin": steps.begin,
        "data": steps.data,
        "end": steps.end,
        "micro": np.ones(count, np.int32),
    }
    return table_of(STEP_ROWS, columns)


def _epochs(steps: Steps, epochs: Between) -> Ints:
    """Return the epochs of steps, counted from 0: those in their arguments, or those around them."""
    if len(steps.epoch) and (steps.epoch >= 0).all():
        return steps.epoch - int(steps.epoch.min() == 1)
    at = np.searchsorted(epochs.begin, steps.begin, side="right") - 1
    inside = at >= 0
    if len(epochs.end):
        inside &= steps.begin < epochs.end[np.maximum(at, 0)]
    return np.where(inside, at, -1)


def _intervals_table(rank: int, steps: Steps, epochs: Between, evaluations: Between) -> pa.Table:
    begin = np.concatenate([epochs.begin, evaluations.begin])
    kinds = ["epoch"] * len(epochs.begin) + ["validation"] * len(evaluations.begin)
    number = np.append(np.arange(len(epochs.begin)), np.full(len(evaluations.begin), -1))
    # An epoch follows its steps, and an evaluation precedes the step after it.
    after = np.concatenate([epochs.end, evaluations.begin])
    columns = {
        "generation": np.zeros(len(begin), np.int32),
        "rank": np.full(len(begin), rank),
        "kind": arrow.texts(kinds),
        "step": np.searchsorted(steps.begin, after),
        "epoch": arrow.array(number, null=number < 0),
        "begin": begin,
        "end": np.concatenate([epochs.end, evaluations.end]),
    }
    return table_of(INTERVAL_ROWS, columns)
