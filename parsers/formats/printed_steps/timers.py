"""Read the stages of steps from timers that trainers print.

Megatron-LM prints a table of timers after its lines, DeepSpeed and older programs a line of them:

    (min, max) time across ranks (ms):
        forward-compute ................................: (400.12, 410.56)
    [Rank 0] time (ms) | fwd: 123.4 | bwd: 234.5 | bwd_inner: 200.1 | bwd_allreduce: 32.1 | step: 45.6

A timer within another one counts once. Stages that do not add up to a step are not shown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stallscope.arrays.stats import mean_with_interval

from .evidence import PART, Evidence
from .vocabulary import timer_of

# A text without a choice at its start is found at once.
_TIMERS = re.compile(
    rb"time (?:(?P<table>across ranks \(ms\):)|\(ms\) \| (?P<line>[^\r\n]{1,2000}))"
)
_BEFORE = re.compile(
    rb"(?P<table>\(min, max\)|max) $|\[Rank (?P<rank>\d{1,6})\] (?:rank=\d{1,6} )?$"
)
_BEFORE_BYTES = 40
_ROW = re.compile(rb"([A-Za-z][\w-]{1,60}) ?\.{2,}: (?:\((\d+\.\d+), )?(\d+\.\d+)\)?\s*$")
_PAIR = re.compile(rb"([A-Za-z][\w -]{0,60}): (\d+\.\d+)(?![\w.])")
_TABLE_BYTES, _TABLE_ROWS, _NEXT_TABLE = 8192, 64, b"across ranks (ms)"
_FEWEST_TABLES = 3
# Tables of steps that take longer or shorter by this factor are of evaluations, or the start.
_UNUSUAL = 2.0
# Stages add up to a step if they are not longer by more than this share.
_LONGER = 0.05
# Times of a timer: the shortest and the longest of all ranks.
_Times = Mapping[str, tuple[float, float]]


def stages_in(
    data: bytes, evidence: Evidence, step_ms: float | None
) -> tuple[dict[str, Any] | None, Sequence[str]]:
    """Return the mean stages that timers print, in milliseconds, and a note if they do not add up.

    Args:
        data: the log.
        evidence: its lines about steps, which may have stages.
        step_ms: the mean time of a step by these; None if unknown.
    """
    stages = _stages_of_timers(data) or _stages_of_lines(evidence)
    if stages is None or step_ms is None:
        return None, ()
    total = sum(stages["ms"].values())
    if "seconds" in evidence.columns:
        # Without the start, which may take long.
        step_ms = min(step_ms, 1e3 * float(np.median(evidence.columns["seconds"])))
    if total <= (1 + _LONGER) * step_ms:
        return stages, ()
    note = (
        f"printed timers of stages add up to {total:,.0f} ms, and a step takes {step_ms:,.0f} ms: "
        "they are not shown as its stages"
    )
    return None, (note,)


def _stages_of_lines(evidence: Evidence) -> dict[str, Any] | None:
    """Return the mean stages in lines about steps; None without compute."""
    columns = evidence.columns
    if "seconds" not in columns:
        return None
    usual = float(np.median(columns["seconds"]))
    rows = columns["seconds"] < _UNUSUAL * usual
    means = {
        name.removeprefix(PART): 1e3 * float(column[rows].mean())
        for name, column in columns.items()
        if name.startswith(PART)
    }
    stages = _stages_of({name: (ms, ms) for name, ms in means.items()})
    if stages is None:
        return None
    if "data" in columns:
        stages["input"] = 1e3 * float(columns["data"][rows].mean())
    several = len(np.unique(columns["rank"])) > 1
    by = "all ranks on average" if several else "the rank that prints"
    return {"ms": stages, "by": by, "tables": int(rows.sum()), "spread": None}


def _stages_of_timers(data: bytes) -> dict[str, Any] | None:
    """Return the mean stages in tables and lines of timers; None without compute.

    The slowest rank waits for no other: its compute is the longest, and its allreduce the shortest.
    """
    tables, whose = [], set()
    for match in _TIMERS.finditer(data):
        before = _BEFORE.search(data[max(match.start() - _BEFORE_BYTES, 0) : match.start()])
        of = (before["table" if match["table"] else "rank"] if before else None) or b""
        if match["table"] and not of:
            continue
        times = dict(_table(data, match.end()) if match["table"] else _pairs(match["line"]))
        stages = _stages_of(times)
        if stages is not None:
            tables.append((times, stages))
            whose.add(of)
    if len(tables) < _FEWEST_TABLES or len(whose) > 1:
        return None
    totals = np.array([sum(stages.values()) for _, stages in tables])
    usual = float(np.median(totals))
    rows = np.flatnonzero((totals > usual / _UNUSUAL) & (totals < usual * _UNUSUAL))
    chosen = [tables[row] for row in rows.tolist()]
    columns = {
        name: np.array([stages.get(name, 0.0) for _, stages in chosen])
        for name in sorted({name for _, stages in chosen for name in stages})
    }
    means = {name: float(values.mean()) for name, values in columns.items()}
    known = {
        "ms": means,
        "by": _whose(whose.pop(), data),
        "tables": len(chosen),
        "spread": _spread([times for times, _ in chosen]),
    }
    if "input" in columns:
        known["input_ci95_ms"] = mean_with_interval(columns["input"]).ci95
    return known


def _whose(rank: bytes, data: bytes) -> str:
    if rank.startswith(b"("):
        return "the slowest rank"
    if rank.startswith(b"max"):
        return "all ranks at the longest"
    if rank:
        return f"rank {int(rank)}"
    return "the last rank" if b"elapsed time per iteration" in data else "the rank that prints"


def _table(data: bytes, at: int) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the timers of a table."""
    following = data[at : at + _TABLE_BYTES].partition(_NEXT_TABLE)[0]
    # Other ranks may print among its lines.
    for line in following.splitlines()[1:_TABLE_ROWS]:
        match = _ROW.search(line)
        if match is not None:
            longest = float(match[3])
            yield match[1].decode(), (float(match[2] or longest), longest)


def _pairs(line: bytes) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the timers of a line."""
    for name, value in _PAIR.findall(line):
        yield name.decode(), (float(value), float(value))


def _stages_of(times: _Times) -> dict[str, float] | None:
    """Return the stages of one step that timers tell, without parts of parts; None without compute."""
    parts: dict[tuple[str, bool], float] = defaultdict(float)
    all_gradients = any(name.endswith("reduce-model-grads") for name in times)
    for name, (shortest, longest) in times.items():
        timer = timer_of(name)
        if all_gradients and name.endswith("all-reduce"):
            # The timer of all gradients contains these.
            continue
        if timer is not None:
            parts[timer] += shortest if timer.part == "allreduce" else longest
    inside, outside = parts.get(("allreduce", True), 0.0), parts.get(("allreduce", False), 0.0)
    stages = {
        "allreduce": inside + outside,
        "other": parts.get(("other", False), 0.0),
        "input": parts.get(("input", True), 0.0),
    }
    forward, backward = (parts.get((name, False)) for name in ("forward", "backward"))
    if forward is not None and backward is not None:
        # The backward pass contains its allreduces, unless a timer is of compute alone.
        alone = "backward-compute" in times or "backward_compute" in times
        inner = parts.get(("backward", True), backward if alone else backward - inside)
        stages["compute"] = forward + max(inner, 0.0)
    elif ("passes", False) in parts:
        # Newer versions reduce gradients within the passes.
        within = outside if "all-grads-sync" in times else 0.0
        stages["compute"] = max(parts["passes", False] - within, 0.0)
    else:
        return None
    # The batch is fetched in the forward pass.
    stages["input"] = min(stages["input"], stages["compute"])
    stages["compute"] -= stages["input"]
    return {name: ms for name, ms in stages.items() if ms > 0}


def _spread(tables: Sequence[_Times]) -> dict[str, Any] | None:
    """Return the timer of a rank's own work that differs most between ranks; None if none does."""
    lows: dict[str, list[float]] = defaultdict(list)
    highs: dict[str, list[float]] = defaultdict(list)
    for times in tables:
        for name, (shortest, longest) in times.items():
            timer = timer_of(name)
            if timer is not None and timer.part in ("input", "forward", "backward"):
                lows[name].append(shortest)
                highs[name].append(longest)
    spreads = [(float(np.mean(highs[name])) - float(np.mean(lows[name])), name) for name in lows]
    difference, name = max(spreads, default=(0.0, ""))
    if difference <= 0:
        return None
    return {
        "timer": name,
        "least_ms": float(np.mean(lows[name])),
        "most_ms": float(np.mean(highs[name])),
    }
