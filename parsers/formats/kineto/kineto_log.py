"""Make a log and events of the steps of a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.blocks import NULL
from stallscope.arrays.types import Ints
from stallscope.errors import UnreadableError
from stallscope.formatting.lists import counted
from stallscope.run import Event, Log, Problem

from ...base import INTERVAL_ROWS, STEP_ROWS, Parsed, table_of
from ...files.unpacking import Readable
from ...rank_names import rank_in
from .kineto_reader import GroupCollective, TraceSpans, read_spans
from .kineto_steps import NO_COLLECTIVES, TracedSteps, steps_of

KNOWN_FROM = "traces of torch.profiler"

# Earlier times count from the boot of a host, in traces without a base time.
_EARLIEST_NS = 946_684_800 * 10**9
_LATEST_NS = 2**62
# The most steps of a trace that become events; profilers usually trace a few.
_MOST_EVENTS = 200
# Waiting for collectives in the middle of steps is reported from this share of a step on.
_WORTH_REPORTING = 0.05
_TIMESTAMPS = ("begin", "data", "ready", "reduced", "end")


# Starts of PyTorch's names of collectives, without underscores, and the names that recorders write.
_KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "recv": "receive",
}
# Kinds that end on all ranks of a group together.
_JOINT = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
# The fact for the collectives of one trace, until all traces of a run are read.
_NUMBERED = "numbered_collectives"


class _Arrival(NamedTuple):
    """A collective on one rank: its kernel runs from the rank's arrival until the end on all ranks."""

    kind: str
    group: str
    size: int
    ns: int


@dataclass(frozen=True)
class RankTrace:
    """One file: the traced steps of one rank."""

    path: str
    rank: int
    spans: TraceSpans
    steps: TracedSteps

    @property
    def base_ns(self) -> int:
        """Return the nanoseconds to add to the trace's times to get wall time; 0 if invalid."""
        last = int(max(self.steps.end.max(), self.steps.host_end.max()))
        return self.spans.base_ns if last + self.spans.base_ns < _LATEST_NS else 0


def read_trace(path: str, file: Readable) -> RankTrace:
    """Read the steps in a trace.

    Raises:
        UnreadableError: if there is none.
    """
    spans = read_spans(file)
    if spans.steps:
        steps = steps_of(spans)
        rank = (rank_in(path)[0] or 0) if spans.rank is None else spans.rank
        return RankTrace(path, rank, spans, steps)
    raise UnreadableError(
        f"{path}: a trace of torch.profiler without steps: call prof.step() after every batch"
    )


def as_log(trace: RankTrace) -> Parsed:
    """Make a log of a trace, without the id of its run, which depends on all traces."""
    steps, count = trace.steps, len(trace.steps)
    columns = {
        "generation": np.zeros(count, np.int64),
        "rank": np.full(count, trace.rank),
        "step": steps.number,
        "micro": np.full(count, steps.micro),
        **{name: _with_nulls(getattr(steps, name), trace.base_ns) for name in _TIMESTAMPS},
    }
    whole, size = trace.spans.whole, trace.spans.bytes
    return Parsed(
        # A profiler that traces again later writes another file.
        log=Log(trace.path, trace.rank, 0, int(steps.number[0]), _facts(trace), whole, size),
        run_id="",
        steps=table_of(STEP_ROWS, columns),
        intervals=arrow.empty_table(INTERVAL_ROWS),
    )


def of_one_run(logs: Sequence[Parsed]) -> list[Parsed]:
    """Complete the logs of one run's traces with what all of them show together.

    The logs of other tools stay as they are.
    """
    others = [log for log in logs if log.log.facts["known_from"] != KNOWN_FROM]
    if others:
        traced = [log for log in logs if log.log.facts["known_from"] == KNOWN_FROM]
        return [*others, *of_one_run(traced)]
    logs = _with_latest_ranks(logs)
    alone = [log for log in logs if log.log.facts.get("size") is None]
    if len({log.log.rank for log in alone}) > 1:
        # Each looks like the trace of a single process.
        logs = [log if log.log.facts.get("size") else _without_reductions(log) for log in logs]
    waits = [log for log in logs if log.log.facts.get("waits_in_the_middle_ns")]
    if not waits:
        return list(logs)
    most = max(waits, key=lambda log: log.log.facts["waits_in_the_middle_ns"][0])
    early, length = map(_ms, most.log.facts["waits_in_the_middle_ns"])
    ranks = counted(len({log.log.rank for log in waits}), "rank")
    what = (
        f"waits for collectives in the middle of steps, on {ranks}, here {early} of {length}, as with "
        "FSDP, SyncBatchNorm, sharded embeddings or broadcast buffers: counted as if it were at the end"
    )
    problem = Problem(most.log.path, what)
    return [replace(log, problems=(problem,)) if log is most else log for log in logs]


def _with_latest_ranks(logs: Sequence[Parsed]) -> list[Parsed]:
    """Count in how many collectives each rank arrived last, where all ranks of the group traced them.

    A collective ends on all of its ranks together, so that the rank with the shortest kernel came last.
    No clock is needed.
    """
    arrivals: dict[tuple[str, int], dict[int, _Arrival]] = defaultdict(dict)
    for index, log in enumerate(logs):
        for key, arrival in (log.log.facts.get(_NUMBERED) or {}).items():
            arrivals[key][index] = arrival
    counts: dict[tuple[int, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for of_logs in arrivals.values():
        kinds = {(arrival.kind, arrival.group, arrival.size) for arrival in of_logs.values()}
        ranks = {logs[index].log.rank for index in of_logs}
        size = next(iter(of_logs.values())).size
        if len(kinds) > 1 or not 1 < len(ranks) == len(of_logs) == size:
            continue
        last = min(of_logs, key=lambda index: of_logs[index].ns)
        for index, arrival in of_logs.items():
            count = counts[index, arrival.kind, arrival.group]
            count[0] += 1
            count[1] += index == last
    return [_counted(log, index, counts) for index, log in enumerate(logs)]


def _counted(
    log: Parsed, index: int, counts: Mapping[tuple[int, str, str], Sequence[int]]
) -> Parsed:
    """Put the counts into the facts of a log, in place of its numbered collectives."""
    facts = {name: fact for name, fact in log.log.facts.items() if name != _NUMBERED}
    if "collectives" in facts:
        waits = [
            {**entry, **dict(zip(("matched", "last"), count, strict=True))}
            if (count := counts.get((index, entry["kind"], entry["group"])))
            else entry
            for entry in facts["collectives"]["waits"]
        ]
        facts["collectives"] = {**facts["collectives"], "waits": waits}
    return replace(log, log=replace(log.log, facts=facts))


def _without_reductions(log: Parsed) -> Parsed:
    """Remove the reductions from the log of one of several processes without collectives.

    It is unknown when they wait for each other.
    """
    steps, facts = log.steps, dict(log.log.facts)
    for name in ("ready", "reduced"):
        field = STEP_ROWS.field(name)
        nulls = pa.nulls(steps.num_rows, field.type)
        steps = steps.set_column(steps.schema.get_field_index(name), field, nulls)
    facts["stamps"] = {"placed": ["data"], "reason": facts["stamps"]["reason"] or NO_COLLECTIVES}
    return replace(log, log=replace(log.log, facts=facts), steps=steps)


def events_of(trace: RankTrace) -> tuple[Event, ...]:
    """Describe the first steps of a trace, for traces next to step logs."""
    return tuple(_event(trace, at) for at in range(min(len(trace.steps), _MOST_EVENTS)))


def _with_nulls(moments: Ints, base_ns: int) -> pa.Array:
    missing = moments == NULL
    return arrow.array(np.where(missing, 0, moments + base_ns), null=missing)


def _facts(trace: RankTrace) -> dict[str, Any]:
    spans, steps = trace.spans, trace.steps
    names = ("data", "ready", "reduced")
    placed = [name for name in names if (getattr(steps, name) != NULL).any()]
    facts: dict[str, Any] = {
        "framework": "pytorch",
        "host": spans.host,
        # Without a host it is unknown which ranks share a clock.
        "clock_domain": None if spans.host else f"rank {trace.rank}",
        "size": spans.size,
        "known_from": KNOWN_FROM,
        # The number of workers is unknown.
        "loader_has_workers": spans.loader_has_workers if len(spans.loaders) else None,
        "loader_workers": 0 if len(spans.loaders) and not spans.loader_has_workers else None,
        "stamps": {"placed": placed, "reason": steps.reason},
        "waits_in_the_middle_ns": _waits_in_the_middle(trace),
        "collectives": _collectives(trace),
        _NUMBERED: _numbered(trace),
    }
    begin = int(steps.begin[0]) + trace.base_ns
    if begin > 0:
        wall = {"wall_ns": begin} if begin >= _EARLIEST_NS else {}
        facts["anchor"] = {"monotonic_ns": begin, **wall}
    return {name: value for name, value in facts.items() if value is not None}


def _collectives(trace: RankTrace) -> dict[str, Any] | None:
    """Add up how long kernels of NCCL ran, by kind and group, as recorders do; None without any."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for collective in trace.spans.of_groups:
        entry = sums[_kind(collective), _group(collective)]
        entry[0] += 1
        entry[1] += collective.ns
    waits = [
        {"kind": kind, "group": group, "waits": count, "waited_us": ns // 1000}
        for (kind, group), (count, ns) in sorted(sums.items())
    ]
    return {"steps": len(trace.steps), "waits": waits} if waits else None


def _numbered(trace: RankTrace) -> dict[tuple[str, int], _Arrival] | None:
    """Return the collectives that end on all ranks of a group together, by group and number."""
    numbered: dict[tuple[str, int], _Arrival] = {}
    ambiguous = set()
    for collective in trace.spans.of_groups:
        kind = _kind(collective)
        if collective.number is None or collective.size is None or kind not in _JOINT:
            continue
        key = collective.group, collective.number
        if key in numbered:
            ambiguous.add(key)
        numbered[key] = _Arrival(kind, _group(collective), collective.size, collective.ns)
    return {key: arrival for key, arrival in numbered.items() if key not in ambiguous} or None


def _kind(collective: GroupCollective) -> str:
    """Return the kind as recorders write it: ``_allgather_base`` is an all_gather."""
    name = collective.kind.lower().replace("_", "")
    return next((kind for start, kind in _KINDS.items() if name.startswith(start)), collective.kind)


def _group(collective: GroupCollective) -> str:
    name = collective.description.replace("mesh_", "", 1)
    return "all ranks" if name == "default_pg" else name


def _waits_in_the_middle(trace: RankTrace) -> tuple[float, float] | None:
    """Return the mean waiting for collectives in the middle of steps, and the length of a step, ns."""
    steps = trace.steps
    early = steps.exposed_early[steps.exposed_early != NULL]
    length = float((steps.end - steps.begin).mean())
    if not len(early) or early.mean() < _WORTH_REPORTING * length:
        return None
    return float(early.mean()), length


def _event(trace: RankTrace, at: int) -> Event:
    steps, host = trace.steps, trace.spans.host
    end = int(steps.host_end[at])
    length = end - int(steps.host_begin[at])
    parts = [f"torch.profiler traced its step {steps.number[at]}: {_ms(length)}"]
    if len(trace.spans.loaders):
        parts.append(f"{_ms(int(steps.loading[at]))} in DataLoaders")
    if steps.has_collectives:
        parts.append(f"{_ms(int(steps.communicating[at]))} with collectives under way")
    if steps.exposed[at] != NULL and steps.has_collectives:
        parts.append(f"{_ms(int(steps.exposed[at]))} of it exposed")
    wall = trace.base_ns + end
    return Event(
        kind="profiled_step",
        where=trace.path,
        what=", ".join(parts),
        ranks=(trace.rank,),
        hosts=(host,) if host else (),
        wall_ns=wall if _EARLIEST_NS <= wall < _LATEST_NS else None,
        waited_ns=length,
    )


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3g} ms"
