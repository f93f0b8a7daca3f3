"""Read records of several lines: times on separate lines, rows of tables, and timers of stages.

    Timer: 0.6686                          | time/              |             |
    epoch:0 || iter:90 || Loss:16.5282     |    iterations      | 2           |
    Timer: 0.6664                          |    time_elapsed    | 48          |
    epoch:0 || iter:100 || Loss:16.3156    |    total_timesteps | 4096        |

Each record becomes one line, whose figures mean what they mean in any line. Only the ends of lines are
replaced, so all other lines stay where they are.

Megatron-LM prints a table of timers after its lines, DeepSpeed and older programs a line of them:

    (min, max) time across ranks (ms):
        forward-compute ................................: (400.12, 410.56)
    [Rank 0] time (ms) | fwd: 123.4 | bwd: 234.5 | bwd_inner: 200.1 | bwd_allreduce: 32.1 | step: 45.6

A timer within another one counts once. Stages that do not add up to a step are not shown.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stallscope.arrays.stats import mean_with_interval
from stallscope.arrays.types import Ints

from ...launcher_output import labels_of
from ...lines.line_blocks import LineBlock, Needle, sample_parts
from .evidence import PART, Evidence
from .figures import EVALUATES, FEWEST_LINES, SAMPLE_BYTES, counts_training, figures_of
from .vocabulary import timer_of

# Longer logs have a line for each record.
_MOST_BYTES = 64 << 20
# A row of a table with a name and a value.
_NAMED_VALUE = re.compile(rb"(?m)^\|([ \t]{0,8}[A-Za-z][^|\n]{0,80})\|([^|\n]{0,80})\|[ \t]*$")
# The text of a line before its first number, which names it.
_HEAD = re.compile(r"(?=[^\d\n]*[A-Za-z])[^\d\n]{2,80}(?=\d)")
_MOST_HEADS = 200
# A time is at most so many lines from its counter, and nearly each has one of its own.
_MOST_LINES, _SHARE_NEAR = 12, 0.9
_END, _JOINT = ord("\n"), ord(";")


def joined_texts(data: bytes) -> Iterator[bytes]:
    """Yield a log with one line for each record, in each way that its lines may belong together."""
    if len(data) > _MOST_BYTES or labels_of(data) is not None:
        return
    data = data.replace(b"\r\n", b" \n")
    sample = b"\n".join(sample_parts(data, SAMPLE_BYTES // 3))
    if len(_NAMED_VALUE.findall(sample)) >= FEWEST_LINES:
        yield _NAMED_VALUE.sub(rb"|\1:\2;", data).replace(b";\n|", b"; |")
    counter_heads, time_heads = _heads(sample.decode("latin-1"))
    if not counter_heads or not time_heads:
        return
    block = LineBlock(b"\n" + data)
    counters, *times = (
        np.unique(np.concatenate([block.places(Needle(b"\n" + head)) for head in heads]))
        for heads in (counter_heads, *([head] for head in time_heads))
    )
    times = [places for places in times if len(places)]
    if not len(counters) or not times:
        return
    begins_with_time = bool(min(places[0] for places in times) < counters[0])
    for time_is_first in (begins_with_time, not begins_with_time):
        text = _joined(data, counters, times, time_is_first=time_is_first)
        if text is not None:
            yield text


def _heads(sample: str) -> tuple[list[bytes], list[bytes]]:
    """Return the starts of lines that repeat: of those with a counter, and of others with a time."""
    counts, lines = Counter[str](), dict[str, str]()
    for line in sample.split("\n"):
        start = _HEAD.match(line)
        if start is not None:
            counts[start[0]] += 1
            lines.setdefault(start[0], line)
    counters, times = [], []
    for head, count in counts.most_common(_MOST_HEADS):
        figures = figures_of(lines[head])
        quantities = {figure.word.quantity for figure in figures}
        if count < FEWEST_LINES or EVALUATES.search(head):
            continue
        if counts_training(figures):
            counters.append(head.encode("latin-1"))
        elif quantities & {"time", "rate"}:
            times.append(head.encode("latin-1"))
    return counters, times


def _joined(
    data: bytes, counters: Ints, times: Sequence[Ints], *, time_is_first: bool
) -> bytes | None:
    """Join each line with a counter and the nearest ones with times; None if these are elsewhere.

    Args:
        data: the log.
        counters: the places of lines with a counter.
        times: those of lines with a time, for each start of such lines.
        time_is_first: whether times stand before their counter.
    """
    text = np.frombuffer(data, np.uint8).copy()
    ends = np.flatnonzero(text == _END)
    counter_lines = np.searchsorted(ends, counters)
    depth = np.zeros(len(ends) + 2, np.int64)
    for places in times:
        lines = np.searchsorted(ends, places)
        lines = lines[::-1] if time_is_first else lines
        at = np.searchsorted(counter_lines, lines) - (not time_is_first)
        has_counter = (at >= 0) & (at < len(counter_lines))
        # The nearest one is the first of each counter.
        numbers, first = np.unique(at[has_counter], return_index=True)
        lines, of_counter = lines[has_counter][first], counter_lines[numbers]
        near = np.abs(of_counter - lines) <= _MOST_LINES
        if near.sum() >= max(FEWEST_LINES, _SHARE_NEAR * len(places)):
            depth[np.minimum(lines, of_counter)[near]] += 1
            depth[np.maximum(lines, of_counter)[near]] -= 1
    within = np.cumsum(depth)[: len(ends)] > 0
    text[ends[within]] = _JOINT
    return text.tobytes() if within.any() else None


# -- timers of stages ------------------------------------------------------------------------------

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
        # Ranks that are slowest in one of them are not in both.
        stages["compute"] = min(forward + max(inner, 0.0), parts.get(("passes", False), np.inf))
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
