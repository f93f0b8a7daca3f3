"""Read the step lines of programs that no other parser knows, if their own figures confirm them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from stallscope.arrays.stats import mean_with_interval
from stallscope.errors import UnreadableError
from stallscope.formatting.lists import joined
from stallscope.run import Problem

from ...base import Parsed, Parser
from ...epochs_only import in_one_file
from ...pattern import by_rank
from ...rank_names import rank_in, stated_ranks
from ..line_pattern import epoch_logs
from .bars import bars_in
from .evidence import KNOWN_FROM, NOTHING_COUNTS, PART, Evidence, evidence_in
from .figures import kinds_in
from .printed_step_parser import logs_of, with_year_note
from .rates import PrintedSettings, printed_settings
from .record_columns import Records
from .records import records_in
from .rows import Rows, rows_of
from .trainers import Meaning
from .vocabulary import Quantity, timer_of

KNOWN_FROM_EPOCHS = "lines about epochs"
NOTHING_REPEATS = "no kind of line repeats with a number that counts"
#: The program whose summary is read without single steps.
TRAINER = "Hugging Face's Trainer"
UNCONFIRMED = "nothing else in the log confirms these times: they may be of something else"
NO_WORDS = "none of its lines names a step, an iteration, a batch, an update or an epoch"
# What figures are, in sentences.
_GROUPS: Mapping[str, frozenset[Quantity]] = {
    "counters": frozenset({"step", "count", "samples", "epoch"}),
    "times": frozenset({"time", "data", "part", "left", "stamp"}),
    "rates": frozenset({"rate"}),
}
#: The file that Hugging Face's Trainer saves.
TRAINER_STATE = re.compile(r"(?:^|/)trainer_state\.json(?:\.\w{1,4})?$")
# The start of a file is longer only if the file is.
_LONG_BYTES = 4 << 20
# Binary files.
_NUL, _START_BYTES = b"\0", 4096
_WORDS = re.compile(rb"(?i)step|iter|itr\b|batch|epoch|update|\]\[|s/it|it/s|\bloss\b")
# Words that a training prints; other programs count batches, too.
_TRAINS = re.compile(rb"(?i)loss|epoch|train|learning.?rate|\blr\b|grad.?norm|mfu\b|tflop")
_TRAINS_BYTES = 1 << 20


class StepLinesParser(Parser):
    name: ClassVar[str] = "step-lines"
    title: ClassVar[str] = "lines about steps, by their words and numbers"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False
    reads_stated_ranks = True
    certain: ClassVar[bool] = False
    looks_further: ClassVar[bool] = True

    def recognises(self, file_name: str, head: bytes) -> bool:
        if _NUL in head[:_START_BYTES] or not _WORDS.search(head) or not _TRAINS.search(head):
            return False
        if len(head) >= _LONG_BYTES and TRAINER_STATE.search(file_name):
            # Its summary is at its end.
            return True
        evidence = best_evidence(head)
        return not isinstance(evidence, str) and bool(evidence.checks)

    def parse(self, path: str, data: bytes) -> Parsed:
        evidence = best_evidence(data)
        if isinstance(evidence, str):
            raise UnreadableError(f"{path}: no times of steps can be read: {evidence}")
        return in_one_file(logs_by(path, data, evidence), len(data))


def logs_by(path: str, data: bytes, evidence: Evidence) -> list[Parsed]:
    """Read the log of each rank from lines whose meaning is known.

    Raises:
        UnreadableError: if they tell no time of a step.
    """
    logs = _logs(path, data, evidence)
    if not any(log.intervals.num_rows for log in logs):
        raise UnreadableError(f"{path}: no two of its lines tell how long steps took")
    first, *others = [_explained(log, evidence) for log in logs]
    notes = evidence.notes if evidence.checks else (*evidence.notes, UNCONFIRMED)
    stages, note = stages_in(data, evidence, first.log.facts.get("step_ms"))
    if stages is not None:
        first = replace(first, log=replace(first.log, facts={**first.log.facts, "stages": stages}))
    problems = (*first.problems, *(Problem(path, each) for each in (*notes, *note)))
    return [replace(first, problems=problems), *others]


def best_evidence(data: bytes) -> Evidence | str:
    """Return the evidence that is confirmed and has the most lines, else any; the reason if none."""
    reason: str = NOTHING_REPEATS
    unconfirmed = None
    trains = _TRAINS.search(data[:_TRAINS_BYTES]) or _TRAINS.search(data[-_TRAINS_BYTES:])
    records = records_in(data)
    if records is not None and records.alone and not records.trains:
        trains = None
    for rows in _rows_in(data, records):
        answer = NOTHING_COUNTS if rows is None else evidence_in(rows, _batches(data))
        if isinstance(answer, str):
            reason = answer
        elif answer.checks and trains:
            return answer
        else:
            unconfirmed = unconfirmed or replace(answer, checks=())
    bars = bars_in(data, stated_ranks(data).size)
    if bars is not None and trains and bars.checks:
        return bars
    summary = None if records is None else _summary_of_the_trainer(records, data)
    if records is not None and records.alone and not unconfirmed:
        reason = records.lacks() or reason
    if summary is not None and summary.checks:
        return summary
    if bars is not None and not trains:
        bars = replace(bars, checks=())
    return unconfirmed or bars or summary or reason


def _rows_in(data: bytes, records: Records | None) -> Iterator[Rows | None]:
    """Yield the records of a file, and its lines if it has others."""
    if records is not None:
        yield from records.kinds()
    if records is None or not (records.alone and records.counts):
        yield from (rows_of(data, kind) for kind in kinds_in(data))


# -- The Trainer's summary: only this tells how long its steps took -------------------------------

_STATED_STEPS = re.compile(rb"Total optimization steps = ([\d,]{1,12})")
_CONTINUES = re.compile(rb"Continuing training from global step (\d{1,9})")


def _summary_of_the_trainer(records: Records, data: bytes) -> Evidence | None:
    """Return the mean over all steps of Hugging Face's Trainer; None without its summary."""
    runtime, rate = (
        records.figures.get(name) for name in ("train_runtime", "train_steps_per_second")
    )
    if runtime is None or rate is None:
        return None
    ends = np.flatnonzero((runtime > 0) & (rate > 0))
    if not len(ends):
        return None
    end = int(ends[-1])
    took, by_rate = float(runtime[end]), float(runtime[end] * rate[end])
    stated = [int(text.replace(b",", b"")) for text in _STATED_STEPS.findall(data)]
    counted_steps = records.figures.get("step")
    steps = stated[-1] if stated else 0
    if counted_steps is not None and counted_steps[end] > 0:
        steps = int(counted_steps[end])
    # The rate is rounded to the thousandth, and counts the steps before a restart.
    agrees = bool(steps) and abs(by_rate - steps) <= 0.5e-3 * took + 1
    steps = steps or round(by_rate)
    continued = [int(text) for text in _CONTINUES.findall(data)]
    first = continued[-1] if continued else 0
    evaluations = records.figures.get("eval_runtime", np.zeros(len(records)))
    evaluated = float(np.nansum(evaluations[:end]))
    if steps <= first or evaluated >= took:
        return None
    checks = (f"the runtime and the rate of its summary agree on {steps:,} steps",)
    seconds = (took - evaluated) / (steps - first)
    with_it = "checkpoints" if evaluated else "evaluations and checkpoints"
    notes = [
        f"the Trainer's summary has one mean over {steps - first:,} steps, with {with_it} in it: single "
        "steps are unknown"
    ]
    if evaluated:
        notes.append(f"evaluations took {evaluated:,.1f} s of {took:,.1f} s, and are left out")
    columns = {**records.stamps, "step": np.full(len(records), steps - first)}
    columns["seconds"] = np.full(len(records), seconds)
    columns = {name: column[end : end + 1] for name, column in columns.items()}
    return Evidence(
        columns,
        "mean",
        checks if agrees else (),
        tuple(notes),
        known_from=f"{KNOWN_FROM} of {TRAINER}",
    )


def lacking(data: bytes) -> str:
    """Say what the lines about steps of a text lack; empty for other content."""
    if _NUL in data[:_START_BYTES]:
        return ""
    if not _WORDS.search(data):
        return NO_WORDS
    evidence, present = best_evidence(data), _present(data)
    if isinstance(evidence, str):
        return f"{present}no times of steps can be read from its lines: {evidence}"
    if evidence.known_from.endswith(TRAINER):
        return (
            "the Trainer's summary has the time of all steps, but their number is not in "
            f"the file: --read-as {StepLinesParser.name} takes it from the summary's rate"
        )
    lines = len(evidence.columns["timed"])
    return (
        f"{present}{lines:,} lines about steps could be read, but nothing else in the log confirms "
        f"their times: --read-as {StepLinesParser.name} reads them nevertheless"
    )


def _present(data: bytes) -> str:
    """Name the figures of the most frequent lines that count; empty without such lines."""
    kinds = kinds_in(data)
    names = {
        group: [
            figure.name or "without a name"
            for figure in kinds[0].figures
            if figure.word.quantity in words
        ]
        for group, words in _GROUPS.items()
        if kinds
    }
    groups = [
        f"{group} ({', '.join(dict.fromkeys(words))})" for group, words in names.items() if words
    ]
    return f"its lines have {joined(groups)}; " if groups else ""


def _logs(path: str, data: bytes, evidence: Evidence) -> list[Parsed]:
    """Make a log of each rank."""
    columns = evidence.columns
    if evidence.of_epochs:
        rank = np.where(columns["rank"] < 0, rank_in(path)[0] or 0, columns["rank"])
        first, *others = epoch_logs(path, by_rank({**columns, "rank": rank}), KNOWN_FROM_EPOCHS)
        return [with_year_note(first, columns), *others]

    def settings(text: bytes, ranks: int | None) -> PrintedSettings:
        return printed_settings(text, ranks or evidence.size)

    return logs_of(
        path, data, columns, Meaning(evidence.known_from, evidence.value, settings=settings)
    )


def _batches(data: bytes) -> Iterator[int]:
    """Yield the batch sizes that a log states."""
    settings = printed_settings(data, None)
    yield from {size for size in (settings.rank_batch, settings.whole_batch) if size}


def _explained(log: Parsed, evidence: Evidence) -> Parsed:
    """Add to a log's facts what confirms its times, and the steps that were trained again."""
    facts: dict[str, Any] = {**log.log.facts}
    if evidence.checks:
        facts["confirmed"] = ", ".join(evidence.checks)
    if evidence.repeated is not None:
        facts |= {
            "repeated_steps": evidence.repeated.steps,
            "restarts": evidence.repeated.restarts,
            "repeated_s": evidence.repeated.seconds,
        }
    return replace(log, log=replace(log.log, facts=facts))


# -- stages ----------------------------------------------------------------------------------------
#
# Megatron-LM prints a table of timers after its lines, DeepSpeed and older programs a line of them:
#
#     (min, max) time across ranks (ms):
#         forward-compute ................................: (400.12, 410.56)
#     [Rank 0] time (ms) | fwd: 123.4 | bwd: 234.5 | bwd_inner: 200.1 | bwd_allreduce: 32.1 | step: 45.6

_TIMERS = re.compile(
    rb"(?P<table>(?:\(min, max\)|max) time across ranks \(ms\):)"
    rb"|(?:\[Rank (?P<rank>\d{1,6})\] (?:rank=\d{1,6} )?)?time \(ms\) \| (?P<line>[^\r\n]{1,2000})"
)
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
        times = dict(_table(data, match.end()) if match["table"] else _pairs(match["line"]))
        stages = _stages_of(times)
        if stages is not None:
            tables.append((times, stages))
            whose.add(match["table"] or match["rank"] or b"")
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
