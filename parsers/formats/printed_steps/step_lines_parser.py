"""Read step lines: of known trainers, and of any other program if their own figures confirm them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from stallscope.errors import UnreadableError
from stallscope.formatting.lists import joined
from stallscope.run import Problem

from ...base import Parsed, Parser
from ...epochs_only import in_one_file
from ...lines.line_blocks import Column
from ...lines.timestamp_columns import stamps_by, without_timestamps
from ...rank_names import rank_in, stated_ranks
from ...window_lines import HALF, MEASURED_HALF, by_rank, decimals_of, half_unit
from ..line_pattern import epoch_logs
from .bars import bars_in
from .counters import clock_of
from .evidence import KNOWN_FROM, NO_TIMES, NOTHING_COUNTS, REASONS, Evidence, evidence_in
from .figures import Figure, kinds_in
from .rank_logs import logs_of, with_year_note
from .rates import PrintedSettings, printed_settings
from .records import records_in
from .rows import Records, Rows, rows_of
from .several_lines import joined_texts, stages_in
from .trainers import TRAINERS, Field, Meaning, Shape, Trainer
from .vocabulary import A_TIME, OF_DAY, TIME_OF_DAY, Quantity

KNOWN_FROM_EPOCHS = "lines about epochs"
NOTHING_REPEATS = "no line that repeats is known to count steps or epochs"
#: The program whose summary is read without single steps.
TRAINER = "Hugging Face's Trainer"
UNCONFIRMED = "nothing else was found that confirms these times: they may be of something else"
#: The start of what lines about steps have.
ITS_LINES = "its lines have"
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
_WORDS = re.compile(rb"(?i)step|iter|itr\b|batch|epoch|update|\]\[|s/it|it/s|\bloss\b|Up\. \d")
# Words that a training prints; other programs count batches, too.
_TRAINS = re.compile(rb"(?i)loss|epoch|train|learning.?rate|\blr\b|grad.?norm|mfu\b|tflop|\bep\. ")
_TRAINS_BYTES = 1 << 20


class StepLinesParser(Parser):
    name: ClassVar[str] = "step-lines"
    title: ClassVar[str] = "lines about steps, by their words and numbers"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False
    reads_stated_ranks = True
    certain: ClassVar[bool] = False
    looks_further: ClassVar[bool] = True

    def __init__(self, *, is_named: bool = False) -> None:
        #: Whether a user named it; if not, it reads only what something else in the log confirms.
        self._is_named = is_named

    def named(self) -> Parser:
        return StepLinesParser(is_named=True)

    def recognises(self, file_name: str, head: bytes) -> bool:
        head = _without_zeros(head)
        if _NUL in head[:_START_BYTES] or not _WORDS.search(head) or not _TRAINS.search(head):
            return False
        if len(head) >= _LONG_BYTES and TRAINER_STATE.search(file_name):
            # Its summary is at its end.
            return True
        evidence = best_evidence(head)
        return not isinstance(evidence, str) and bool(evidence.checks)

    def parse(self, path: str, data: bytes) -> Parsed:
        text = _without_zeros(data)
        evidence = best_evidence(text)
        if isinstance(evidence, str):
            raise UnreadableError(f"{path}: no times of steps can be read: {evidence}")
        if not (self._is_named or evidence.checks):
            raise UnreadableError(
                f"{path}: nothing in the whole log confirms the times of its lines about steps: "
                f"--read-as {self.name} reads them nevertheless"
            )
        return in_one_file(logs_by(path, text, evidence), len(data))


def _without_zeros(data: bytes) -> bytes:
    """Return a log without the zeros at its start, as one has that was emptied while it was written."""
    return data.lstrip(_NUL)


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
    trains = _TRAINS.search(data[:_TRAINS_BYTES]) or _TRAINS.search(data[-_TRAINS_BYTES:])
    records = records_in(data)
    if records is not None and records.alone and not records.trains:
        trains = None
    lines = _best_of(_rows_in(data, records), data, trains=bool(trains))
    if isinstance(lines, Evidence) and lines.checks:
        return lines
    bars = bars_in(data, stated_ranks(data).size)
    if bars is not None and trains and bars.checks:
        return bars
    summary = None if records is None else _summary_of_the_trainer(records, data)
    if isinstance(lines, str) and records is not None and records.alone:
        lines = records.lacks() or lines
    if summary is not None and summary.checks:
        return summary
    first: Evidence | str | None = None
    for text in joined_texts(data) if records is None else ():
        kinds = (rows_of(text, [kind])[0] for kind in kinds_in(text))
        answer = _best_of(kinds, data, trains=bool(trains))
        if isinstance(answer, Evidence) and answer.checks:
            return answer
        # Only what confirms them tells that lines belong together in another way.
        first = first or answer
    if isinstance(lines, str) and first is not None:
        lines = _clearer(lines, first) if isinstance(first, str) else first
    if bars is not None and not trains:
        bars = replace(bars, checks=())
    return (lines if isinstance(lines, Evidence) else None) or bars or summary or lines


def _best_of(kinds: Iterable[Rows | None], data: bytes, *, trains: bool) -> Evidence | str:
    """Return the first evidence of kinds of lines that is confirmed, else any; the reason if none."""
    reason: str = NOTHING_REPEATS
    unconfirmed = None
    for rows in kinds:
        answer = (
            NOTHING_COUNTS if rows is None else evidence_in(_without_dates(rows), _batches(data))
        )
        if isinstance(answer, str):
            reason = _clearer(reason, answer)
        elif answer.checks and trains:
            return answer
        else:
            unconfirmed = unconfirmed or replace(answer, checks=())
    return unconfirmed or reason


def _without_dates(rows: Rows) -> Rows:
    """Return lines with times of day in place of timestamps whose days are uncertain."""
    if rows.dated or not rows.stamps["timed"].all():
        return rows
    figure = Figure(TIME_OF_DAY, OF_DAY, "", "", True, False, "")
    kind = replace(rows.kind, figures=[figure, *rows.kind.figures])
    seconds = rows.stamps["ns"] / 1e9 % 86_400
    return Rows(kind, [seconds, *rows.values], {**rows.stamps, **without_timestamps(len(rows))})


def _clearer(reason: str, second: str) -> str:
    """Return the reason that tells more; one of records alone is not compared."""
    order = (NOTHING_REPEATS, *REASONS)
    return max(reason, second, key=order.index) if reason in order else reason


def _rows_in(data: bytes, records: Records | None) -> Iterator[Rows | None]:
    """Yield the records of a file, and its lines if it has others."""
    if records is not None:
        yield from records.kinds()
    if records is None or not (records.alone and records.counts):
        yield from (rows_of(data, [kind])[0] for kind in kinds_in(data))


# -- known trainers --------------------------------------------------------------------------------

# Larger numbers are damage; epochs have 32 bits.
_MOST, _MOST_EPOCH = 1e12, 2.0**31


class PrintedStepsParser(Parser):
    """Reads the lines of a known trainer.

    Args:
        trainer: its row of the table.
    """

    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False
    reads_stated_ranks = True
    looks_further: ClassVar[bool] = True

    def __init__(self, trainer: Trainer) -> None:
        self.name = trainer.name  # type: ignore[misc]
        self.title = trainer.title  # type: ignore[misc]
        self.certain = trainer.certain  # type: ignore[misc]
        self._trainer = trainer

    def recognises(self, file_name: str, head: bytes) -> bool:
        return any(shape.is_in(head) for shape in self._trainer.shapes)

    def parse(self, path: str, data: bytes) -> Parsed:
        columns, epochs = _columns(data, self._trainer.shapes, self._trainer.epoch_shapes)
        logs = (
            [] if columns is None else logs_of(path, data, columns, self._trainer.meaning, epochs)
        )
        if not any(log.intervals.num_rows for log in logs):
            evidence = best_evidence(data)
            if not isinstance(evidence, str) and evidence.checks:
                # Lines of another program may look alike, and have other figures.
                return in_one_file(logs_by(path, data, evidence), len(data))
            raise UnreadableError(
                f"{path}: this looks like {self.title}, and no two of its lines tell how long steps took"
            )
        return in_one_file(logs, len(data))


def _columns(
    data: bytes, shapes: Sequence[Shape], epoch_shapes: Sequence[Shape]
) -> list[dict[str, Column] | None]:
    """Return the fields of lines about steps, and of those about epochs; None without any.

    Of each, the first shape counts that a file has lines of.
    """
    columns: list[dict[str, Column] | None] = [None, None]
    kinds = {
        at: filter(None, (shape.kind_in(data) for shape in choice))
        for at, choice in enumerate((shapes, epoch_shapes))
    }
    while known := {at: kind for at, rest in kinds.items() if (kind := next(rest, None))}:
        of_epochs = [place for place, at in enumerate(known) if at == 1]
        rows_of_each = rows_of(data, [kind for kind, _ in known.values()], 1, of_epochs)
        for (at, (_, fields)), rows in zip(known.items(), rows_of_each, strict=True):
            if rows is not None:
                columns[at] = _fields_of(rows, fields)
                del kinds[at]
    return columns


def _fields_of(rows: Rows, fields: Sequence[Field]) -> dict[str, Column] | None:
    """Return the fields of lines of a known trainer, without damaged lines; None if all are."""
    columns, whole = dict(rows.stamps), np.ones(len(rows), bool)
    for name, figure, values in zip(fields, rows.kind.figures, rows.values, strict=True):
        if name == "rank":
            continue
        most = _MOST_EPOCH if name == "epoch" else _MOST
        whole &= (values >= 0) & (values < most)
        if name == "stamp":
            clock = clock_of(values, "the lines' timestamps")
            columns |= stamps_by(clock.ns, clock.unit_ns)
        elif name in ("epoch", "step", "steps"):
            columns[name] = np.rint(np.clip(values, 0, most)).astype(np.int64)
        else:
            unit_s = figure.word.unit_s or 1.0
            columns[name] = values * unit_s
            half = 0.5 * 10.0 ** -decimals_of(figure.text) * unit_s
            columns[HALF + name] = np.full(len(values), half)
    if whole.all():
        return columns
    return {name: column[whole] for name, column in columns.items()} if whole.any() else None


def known_trainers() -> tuple[Parser, ...]:
    """Return the parsers of trainers whose lines have a shape."""
    return tuple(PrintedStepsParser(trainer) for trainer in TRAINERS if trainer.shapes)


# -- The Trainer's summary: only this tells how long its steps took -------------------------------

_STATED_STEPS = re.compile(rb"Total optimization steps = ([\d,]{1,12})|\d/(\d{1,9}) \[\d\d:")
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
    stated = {
        int((text or total).replace(b",", b"")) for text, total in _STATED_STEPS.findall(data)
    }
    names = (name for name in ("step", "steps", "global_step") if name in records.figures)
    counted_steps = records.figures.get(next(names, ""))
    # Bars of evaluations go to other numbers.
    steps = min(stated, key=lambda number: abs(by_rate - number), default=0)
    if counted_steps is not None and counted_steps[end] > 0:
        steps = int(counted_steps[end])
    # The rate is rounded to the thousandth, and counts the steps before a restart.
    half = 0.5e-3 * took + 1
    evaluations, epochs = (
        records.figures.get(name, np.full(len(records), np.nan))
        for name in ("eval_runtime", "epoch")
    )
    logged = int((~np.isnan(epochs) & np.isnan(runtime) & np.isnan(evaluations))[:end].sum())
    if len(ends) == 1 and not steps and logged > half > abs(by_rate - logged):
        # Each step has a record.
        steps = logged
    agrees = bool(steps) and abs(by_rate - steps) <= half
    steps = steps or round(by_rate)
    continued = [int(text) for text in _CONTINUES.findall(data)]
    first = continued[-1] if continued else 0
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
    if len(ends) > 1:
        notes.append(f"the log has the summaries of {len(ends)} trainings: the last one is read")
    if evaluated:
        notes.append(f"evaluations took {evaluated:,.1f} s of {took:,.1f} s, and are left out")
    columns = {**records.stamps, "step": np.full(len(records), steps - first)}
    columns["seconds"] = np.full(len(records), seconds)
    columns[MEASURED_HALF] = np.full(len(records), half_unit(runtime[ends]) / (steps - first))
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
    data = _without_zeros(data)
    if _NUL in data[:_START_BYTES]:
        return ""
    if not _WORDS.search(data):
        return NO_WORDS
    evidence, present = best_evidence(data), _present(data)
    if isinstance(evidence, str):
        times = _unread_times(data) if evidence == NO_TIMES and "times (" not in present else ""
        return f"{present}no times of steps can be read from its lines: {evidence}{times}"
    if evidence.known_from.endswith(TRAINER):
        return (
            "the Trainer's summary has the time of all steps, but their number was not found in "
            f"the file: --read-as {StepLinesParser.name} takes it from the summary's rate"
        )
    try:
        logs_by("", data, evidence)
    except UnreadableError as error:
        return f"{present}no times of steps can be read from its lines: {str(error).lstrip(': ')}"
    lines, of = len(evidence.columns["timed"]), "epochs" if evidence.of_epochs else "steps"
    return (
        f"{present}{lines:,} lines about {of} could be read, but nothing else was found that confirms "
        f"their times: --read-as {StepLinesParser.name} reads them nevertheless"
    )


def _unread_times(data: bytes) -> str:
    """Quote the first line with a time; empty without any."""
    match = A_TIME.search(data[:_TRAINS_BYTES]) or A_TIME.search(data[-_TRAINS_BYTES:])
    if match is None:
        return ""
    return f'; the time in "{match[0].decode("utf-8", "replace").strip()}" is not read'


def _present(data: bytes) -> str:
    """Name the figures of the most frequent lines that count; empty without such lines."""
    kinds = kinds_in(data)
    names = {
        group: [
            figure.name or "without a name"
            for figure in kinds[0].figures
            if figure.word.quantity in words
            # ``grad 0.7`` may be a norm.
            if figure.word.quantity != "part" or figure.word.unit_s is not None
        ]
        for group, words in _GROUPS.items()
        if kinds
    }
    groups = [
        f"{group} ({', '.join(dict.fromkeys(words))})" for group, words in names.items() if words
    ]
    return f"{ITS_LINES} {joined(groups)}; " if groups else ""


def _logs(path: str, data: bytes, evidence: Evidence) -> list[Parsed]:
    """Make a log of each rank."""
    columns = evidence.columns
    if evidence.of_epochs:
        rank = np.where(columns["rank"] < 0, rank_in(path)[0] or 0, columns["rank"])
        ranks = by_rank({**columns, "rank": rank})
        at_end, number = evidence.at_end, evidence.first_epoch
        first, *others = epoch_logs(path, ranks, KNOWN_FROM_EPOCHS, at_end=at_end, first=number)
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
    if evidence.batch_from is not None:
        facts["batch_from"] = evidence.batch_from
    if evidence.repeated is not None:
        facts |= {
            "repeated_steps": evidence.repeated.steps,
            "restarts": evidence.repeated.restarts,
            "repeated_s": evidence.repeated.seconds,
        }
    return replace(log, log=replace(log.log, facts=facts))
