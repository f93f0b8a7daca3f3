"""Read the step lines of programs that no other parser knows, if their own figures confirm them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from stallscope.errors import UnreadableError
from stallscope.run import Problem

from ...base import Parsed, Parser
from ...epochs_only import in_one_file
from ...pattern import by_rank
from ...rank_names import rank_in, stated_ranks
from ..line_pattern import epoch_logs
from .bars import bars_in
from .evidence import NOTHING_COUNTS, Evidence, evidence_in
from .figures import kinds_in
from .printed_step_parser import logs_of, with_year_note
from .rates import PrintedSettings, printed_settings
from .rows import rows_of, table_in
from .trainers import Meaning

KNOWN_FROM_EPOCHS = "lines about epochs"
NOTHING_REPEATS = "no kind of line repeats with a number that counts"
UNCONFIRMED = "nothing else in the log confirms these times: they may be of something else"
# Binary files.
_NUL, _START_BYTES = b"\0", 4096
_WORDS = re.compile(rb"(?i)step|iter|itr\b|batch|epoch|update|\]\[|s/it|it/s")
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
    problems = (*first.problems, *(Problem(path, note) for note in notes))
    return [replace(first, problems=problems), *others]


def best_evidence(data: bytes) -> Evidence | str:
    """Return the evidence that is confirmed and has the most lines, else any; the reason if none."""
    reason: str = NOTHING_REPEATS
    unconfirmed = None
    trains = _TRAINS.search(data[:_TRAINS_BYTES]) or _TRAINS.search(data[-_TRAINS_BYTES:])
    table = table_in(data)
    for rows in (rows_of(data, kind) for kind in kinds_in(data)) if table is None else (table,):
        answer = NOTHING_COUNTS if rows is None else evidence_in(rows, _batches(data))
        if isinstance(answer, str):
            reason = answer
        elif answer.checks and trains:
            return answer
        else:
            unconfirmed = unconfirmed or replace(answer, checks=())
    bars = bars_in(data, stated_ranks(data).size)
    if bars is not None and (unconfirmed is None or (bars.checks and trains)):
        return bars if trains else replace(bars, checks=())
    return unconfirmed or reason


def lacking(data: bytes) -> str:
    """Say what the lines about steps of a text lack; empty for other content."""
    if _NUL in data[:_START_BYTES] or not _WORDS.search(data):
        return ""
    evidence = best_evidence(data)
    if isinstance(evidence, str):
        return f"no times of steps can be read from its lines: {evidence}"
    return (
        f"{len(evidence.columns['timed']):,} lines about steps could be read, but nothing else in "
        f"the log confirms their times: --read-as {StepLinesParser.name} reads them nevertheless"
    )


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
