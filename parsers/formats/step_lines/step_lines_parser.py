"""Read the step lines of programs that no other parser knows, if their own figures confirm them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from stallscope.errors import UnreadableError
from stallscope.run import Problem

from ...base import Parsed, Parser
from ...epochs_only import in_one_file
from ...rank_names import stated_ranks
from ..printed_steps import Meaning, logs_of
from ..printed_steps.rates import PrintedSettings, printed_settings
from .bars import bars_in
from .evidence import NOTHING_COUNTS, Evidence, evidence_in
from .figures import kinds_in, rows_of, table_in

KNOWN_FROM = "lines about steps"
NOTHING_REPEATS = "no kind of line repeats with a number that counts"
NO_TRAINING = "no word in it is one of training"
UNCONFIRMED = "nothing else in the log confirms these times: they may be of something else"
# Binary files.
_NUL = b"\0"
_WORDS = re.compile(rb"(?i)step|iter|itr\b|batch|epoch|update|\]\[|s/it|it/s")


# Words that a training prints; other programs count batches, too.
_TRAINS = re.compile(rb"(?i)loss|epoch|train|learning.?rate|\blr\b|grad.?norm|mfu\b|tflop")
_TRAINS_BYTES = 1 << 20


class _Answer(NamedTuple):
    """The best reading of a text; the reason if there is none."""

    evidence: Evidence | None
    reason: str = ""


class StepLinesParser(Parser):
    name: ClassVar[str] = "step-lines"
    title: ClassVar[str] = "lines about steps, by their words and numbers"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False
    reads_stated_ranks = True
    certain: ClassVar[bool] = False
    looks_further: ClassVar[bool] = True

    def recognises(self, file_name: str, head: bytes) -> bool:
        if _NUL in head[:4096] or not _WORDS.search(head):
            return False
        evidence = _best(head).evidence
        return evidence is not None and bool(evidence.checks)

    def parse(self, path: str, data: bytes) -> Parsed:
        evidence, reason = _best(data)
        if evidence is None:
            raise UnreadableError(f"{path}: no step times can be read: {reason}")
        meaning = Meaning(
            f"{KNOWN_FROM} of {evidence.program}" if evidence.program else KNOWN_FROM,
            evidence.value,
            settings=lambda text, ranks: _settings(text, ranks, evidence.size),
        )
        logs = logs_of(path, data, evidence.columns, meaning)
        if not any(log.intervals.num_rows for log in logs):
            raise UnreadableError(
                f"{path}: no two of its lines about steps tell how long steps took"
            )
        first, *others = [_explained(log, evidence) for log in logs]
        notes = evidence.notes if evidence.checks else (*evidence.notes, UNCONFIRMED)
        problems = (*first.problems, *(Problem(path, note) for note in notes))
        return in_one_file([replace(first, problems=problems), *others], len(data))


def _settings(data: bytes, ranks: int | None, size: int | None) -> PrintedSettings:
    return printed_settings(data, ranks or size)


def _best(data: bytes) -> _Answer:
    """Return the reading that is confirmed and has the most lines."""
    reason, unconfirmed = NOTHING_REPEATS, None
    if not _TRAINS.search(data[:_TRAINS_BYTES]) and not _TRAINS.search(data[-_TRAINS_BYTES:]):
        return _Answer(None, NO_TRAINING)
    table = table_in(data)
    for rows in (rows_of(data, kind) for kind in kinds_in(data)) if table is None else (table,):
        answer = NOTHING_COUNTS if rows is None else evidence_in(rows, _batches(data))
        if isinstance(answer, str):
            reason = answer
        elif answer.checks:
            return _Answer(answer)
        else:
            unconfirmed = unconfirmed or answer
    bars = bars_in(data, stated_ranks(data).size)
    if bars is not None and (bars.checks or unconfirmed is None):
        return _Answer(bars)
    return _Answer(unconfirmed, reason)


def _batches(data: bytes) -> Iterator[int]:
    """Yield the batch sizes that a log states."""
    settings = printed_settings(data, None)
    yield from {size for size in (settings.rank_batch, settings.whole_batch) if size}


def _explained(log: Parsed, evidence: Evidence) -> Parsed:
    """Add to a log's facts what confirms its times."""
    facts: dict[str, Any] = {**log.log.facts}
    if "precision" in facts and evidence.checks:
        facts["precision"] = f"{facts['precision']}; {', '.join(evidence.checks)}"
    return replace(log, log=replace(log.log, facts=facts))
