"""Make a log of each rank of printed lines, with its epochs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from stallscope.arrays.stats import passes
from stallscope.arrays.types import Ints
from stallscope.errors import UnreadableError
from stallscope.formatting.lists import counted
from stallscope.run import Problem

from ...base import Parsed
from ...epochs_only import (
    LATEST_NS,
    Epochs,
    clock_facts,
    epochs_as_printed,
    epochs_between_lines,
    epochs_log,
    first_epoch,
    rounded_to,
    windows_table,
)
from ...lines.line_blocks import Column
from ...lines.timestamp_columns import timestamp_at, year_note
from ...rank_names import (
    FROM_TEXT,
    HEAD_BYTES,
    hosts_of_ranks,
    labelled_ranks,
    names_nodes,
    rank_in,
    size_facts,
    stated_ranks,
)
from ...window_durations import Durations
from ...window_lines import StepLines, by_rank, step_lines, without_repeated
from ...window_meaning import durations
from ...work_lines import RESTART, WORK_BETWEEN
from ..mlperf.mlperf_marks import logged
from ..mlperf.mlperf_parser import completed
from .counters import agrees
from .figures import figures_of
from .rates import AGREE, PrintedSettings, RateSamples, rate_samples
from .trainers import Meaning

#: The rank of lines without a launcher's label.
NO_RANK = -1
# Other sizes may be of one rank, of a part of a step, or of tokens.
_GLOBAL = re.compile(rb"(?i)global[_ -](?:train[_ -])?batch")
# Epochs have one line each if so many lines are about another epoch than the line before.
_MOST_WITH_ONE = 0.9
# A pause is longer than so many units of timestamps.
_UNITS_OF_PAUSE = 3
# If more of a rank's lines are repeated, several ranks print them.
_MOST_REPEATED = 0.5


def logs_of(
    path: str,
    data: bytes,
    columns: Mapping[str, Column],
    meaning: Meaning,
    epochs: Mapping[str, Column] | None = None,
) -> list[Parsed]:
    """Make a log of each rank: the times of steps, and of epochs if lines have them.

    Args:
        path: the file.
        data: its content, to find ranks and batch sizes.
        columns: fields of its lines, ``step`` among them; the rank is -1 without a launcher's label.
        meaning: their meaning.
        epochs: fields of lines with durations of epochs (``seconds``).

    Raises:
        UnreadableError: if their times are not those of steps.
    """
    mlperf = logged(data)
    ranks = _Ranks.of(path, data, columns, mlperf.settings.size)
    lines = {
        rank: step_lines(rank_columns, meaning.first_step, meaning.untimed)
        for rank, rank_columns in ranks.split(columns).items()
    }
    zero = min(
        (int(ns[0]) for rank_lines in lines.values() if (ns := rank_lines.stamps_ns) is not None),
        default=0,
    )
    settings = meaning.settings(data, ranks.batches)
    known = {
        "framework": meaning.framework,
        "known_from": meaning.known_from,
        "batch_size": settings.rank_batch,
        **_job_facts(data),
        **mlperf.settings.facts,
        **ranks.facts,
    }
    if settings.whole_batch is not None and _GLOBAL.search(data[:HEAD_BYTES]):
        known["batch_from"] = "settings"
    if ranks.batches != ranks.size:
        known["samples_per_step"] = settings.whole_batch
    if ranks.size is None and settings.ranks is not None:
        known |= size_facts(settings.ranks)
    facts = {name: value for name, value in known.items() if value is not None}
    hosts = hosts_of_ranks(data)
    of_epochs = {} if epochs is None else ranks.split(epochs)
    took = {
        rank: without_repeated(rank_columns, "epoch")[0] for rank, rank_columns in of_epochs.items()
    }
    first, *others = (
        _log(
            path,
            rank,
            rank_lines,
            took.get(rank),
            meaning,
            settings,
            zero,
            facts | ({"host": hosts[rank]} if rank in hosts else {}),
        )
        for rank, rank_lines in lines.items()
    )
    return completed([with_year_note(first, columns), *others], mlperf, zero)


def with_year_note(log: Parsed, columns: Mapping[str, Column]) -> Parsed:
    """Add a note that the year of the lines' timestamps is assumed, if they have none."""
    note = year_note(columns)
    if note is None:
        return log
    return replace(log, problems=(*log.problems, Problem(log.log.path, note)))


def _log(
    path: str,
    rank: int,
    lines: StepLines,
    epoch_lines: Mapping[str, Column] | None,
    meaning: Meaning,
    settings: PrintedSettings,
    zero: int,
    facts: Mapping[str, Any],
) -> Parsed:
    samples = _samples(lines, epoch_lines, meaning, settings)
    windows = durations(
        lines,
        meaning.value,
        samples.per_step,
        window=meaning.window,
        is_certain=meaning.is_certain,
    )
    first = first_epoch([lines.columns, epoch_lines or {}])
    facts = {**facts, **_clock_facts(lines, zero), **_rate_facts(lines, samples)}
    if lines.numbers is not None:
        facts["step_numbers"] = lines.numbers
    if lines.jumps.any() or (lines.apart & ~lines.restarts).sum() > lines.training.max(initial=0):
        facts["has_parts"] = True
    if lines.of("steps") is not None:
        facts["epoch_steps"] = int(lines.columns["steps"].max())
    if lines.epochs is not None:
        facts["logged_epochs"] = _distinct_pairs(lines.training, lines.epochs)
    tables = []
    if windows is not None:
        facts |= {**windows.facts, **_work_facts(lines, windows)}
        tables.append(_windows(path, rank, lines, windows, zero))
    epochs = _epochs(lines, epoch_lines, zero, first)
    if epochs is not None and len(epochs.number):
        facts |= epochs.facts
        facts.setdefault("precision", f"epochs, to {rounded_to(epochs.half_ms)}")
        tables.append(epochs.table(path, rank))
    problems = [Problem(path, what) for what in _problems(rank, lines, samples, bool(tables))]
    if windows is not None and windows.note:
        problems.append(Problem(path, windows.note))
    return epochs_log(path, rank=rank, facts=facts, ended=False, tables=tables, problems=problems)


def _samples(
    lines: StepLines,
    epoch_lines: Mapping[str, Column] | None,
    meaning: Meaning,
    settings: PrintedSettings,
) -> RateSamples:
    """Find the samples per step in rates, which trainings of one log may have unlike ones of."""
    several = [lines.training == number for number in np.unique(lines.training).tolist()]
    epochs = {} if epoch_lines is None else epoch_lines
    training = passes(epochs["epoch"]) if epochs else np.zeros(0, np.int64)
    if len(several) < 2 or not _has_rates(lines):
        several, training = [np.ones(len(lines), bool)], training * 0
    each = []
    for number, rows in enumerate(several):
        of_epochs = [
            epochs[name][training == number].tolist() for name in ("epoch", "seconds") if epochs
        ]
        part = {name: column[rows] for name, column in lines.columns.items()}
        own_lines = lines if rows.all() else step_lines(part, meaning.first_step, meaning.untimed)
        epoch_s = dict(zip(*of_epochs, strict=True))
        each.append(rate_samples(own_lines, settings, meaning.rate_of, epoch_s))
    known = [samples.per_step for samples in each if samples.per_step is not None]
    if len(each) > 1 and (len(known) < len(each) or not agrees(max(known) / min(known), AGREE)):
        return RateSamples(None, None, "the log's trainings have unlike batches, or unknown ones")
    return each[0]


def _epochs(
    lines: StepLines, epoch_lines: Mapping[str, Column] | None, zero: int, first: int
) -> Epochs | None:
    if epoch_lines is not None:
        return epochs_as_printed(epoch_lines, zero, first)
    if lines.of("epoch") is None:
        return None
    columns = {**lines.columns, "training": lines.training}
    return epochs_between_lines(columns, zero, first, at_end=_are_at_ends(lines))


def _are_at_ends(lines: StepLines) -> bool:
    """Whether each epoch has one line, nearer to its end than to its start."""
    step, total, epoch = lines.columns["step"], lines.of("steps"), lines.columns["epoch"]
    is_another = np.append(True, np.diff(epoch) != 0)[: len(epoch)]
    has_one = is_another.mean() >= _MOST_WITH_ONE and lines.begins.all()
    return bool(has_one and (2 * step > (2 if total is None else total)).all())


@dataclass(frozen=True)
class _Ranks:
    """The ranks of a file's lines, and the number of all ranks."""

    #: The rank of all lines; None if lines have their own.
    only: int | None
    #: The number of ranks that trained, and of those with batches of their own; None if unknown.
    size: int | None
    batches: int | None
    facts: Mapping[str, Any]
    #: The label of the lines that are read, if labels name nodes; None otherwise.
    node: int | None = None

    def split(self, columns: Mapping[str, Column]) -> dict[int, dict[str, Column]]:
        """Split columns by rank."""
        if self.node is not None:
            chosen = columns["rank"] == self.node
            columns = {name: column[chosen] for name, column in columns.items()}
        if self.only is not None:
            columns = {**columns, "rank": np.full(len(columns["rank"]), self.only)}
        # Among labelled lines, those without a label are the launcher's own.
        return {
            rank: rank_columns for rank, rank_columns in by_rank(columns).items() if rank != NO_RANK
        }

    @classmethod
    def of(
        cls, path: str, data: bytes, columns: Mapping[str, Column], in_mlperf: int | None
    ) -> _Ranks:
        """Find the ranks by launchers' labels, else by the path, else in the program's text.

        Args:
            path: the file.
            data: its content.
            columns: fields of its lines.
            in_mlperf: the number of ranks in MLPerf's metadata.
        """
        stated, by_path = stated_ranks(data), rank_in(path)[0]
        labelled = [rank for rank in np.unique(columns["rank"]).tolist() if rank != NO_RANK]
        launched = {*labelled, *labelled_ranks(data)}
        facts, only, node = size_facts(stated.size, launched, in_mlperf), None, None
        if stated.varies:
            facts["size_varies"] = True
        if by_path is not None and len(labelled) < 2:
            # Programs that do not know the other ranks print 0.
            only = by_path
        elif not labelled or names_nodes(data, launched, stated.size):
            only = stated.rank or 0
            node = min(labelled, default=None)
            if stated.rank is not None:
                facts["rank_from"] = FROM_TEXT
        size = facts.get("size")
        return cls(only, size, stated.batches or size, facts, node)


def _clock_facts(lines: StepLines, zero: int) -> dict[str, Any]:
    ns = lines.stamps_ns
    if ns is None:
        return clock_facts(None, zero)
    at = int(np.argmax(lines.columns["timed"]))
    first = replace(timestamp_at(lines.columns, at), resolution_ns=lines.stamp_unit_ns)
    return clock_facts(first, zero)


def _rate_facts(lines: StepLines, samples: RateSamples) -> dict[str, Any]:
    """Return the facts about printed rates; nothing without rates."""
    if not _has_rates(lines):
        return {}
    known = {"rate_samples": samples.per_step, "rate_of": samples.of, "rate_why": samples.why}
    known["batch_from"] = None if samples.of is None else "rates"
    if samples.assumed:
        known["samples_per_step"] = samples.per_step
    return {name: value for name, value in known.items() if value is not None}


def _work_facts(lines: StepLines, windows: Durations) -> dict[str, Any]:
    """Return the steps of windows in or before which lines name other work, or trainings begin."""
    facts: dict[str, Any] = {}
    for work in WORK_BETWEEN:
        counts = lines.of(work)
        if work == RESTART and lines.apart.any():
            # The time before these lines is no pause of the job either.
            counts = np.cumsum(lines.apart) + (0 if counts is None else counts)
        if counts is not None:
            steps = _steps_after(counts, lines, windows)
            facts |= {f"steps_after_{work}": steps} if steps else {}
    if windows.source == "stamps" and lines.work[windows.at].any():
        last = lines.last_step[windows.at][lines.work[windows.at]]
        facts["steps_after_other_work"] = (last + 1).tolist()
    if lines.training.any():
        facts["steps_after_training"] = _steps_after(lines.training, lines, windows)
    return facts


def _steps_after(counts: Ints, lines: StepLines, windows: Durations) -> list[int]:
    """Return the steps after windows in or before which a count rises."""
    rises = np.diff(counts[windows.at], prepend=0) > 0
    return [int(step) + 1 for step in lines.last_step[windows.at][rises]]


def _distinct_pairs(first: Ints, second: Ints) -> int:
    """Count the distinct pairs of two columns, in which equal pairs often follow each other."""
    changed = (np.diff(first) != 0) | (np.diff(second) != 0)
    rows = np.append(True, changed)[: len(first)]
    return len({*zip(first[rows].tolist(), second[rows].tolist(), strict=True)})


def _has_rates(lines: StepLines) -> bool:
    return lines.of("rate") is not None or lines.of("mean_rate") is not None


def _problems(rank: int, lines: StepLines, samples: RateSamples, timed: bool) -> Iterator[str]:
    if not timed:
        yield "lines have no times: no timestamps, or there is only one line"
    if lines.repeated > _MOST_REPEATED * len(lines):
        yield (
            f"{counted(lines.repeated, 'line')} of rank {rank} about the step of the line before: "
            "several ranks print into this file without labels, and one line of each step is used"
        )
    if lines.jumps.any():
        missing = int((lines.since - lines.own_steps).sum())
        yield f"the log lacks the lines about {missing:,} steps: the time of these is not used"
    trainings = int(lines.training.max(initial=0)) + 1
    again = counted(int(lines.again.sum()), "time")
    # Steps that begin again within an epoch may be those of a part of it, or of another training.
    if trainings > 1:
        least = "at least " if lines.again.any() else ""
        yield (
            f"the log has {least}{trainings:,} trainings, as epochs begin again with the first one: "
            "step times are those of all of them, and changes are searched within each"
        )
    elif lines.again.any() and np.ptp(lines.columns["epoch"]) == 0:
        yield (
            f"steps begin again {again} in the same epoch: these may be several trainings, and step "
            "times are those of all of them"
        )
    if lines.restarts.any():
        starts = counted(int(lines.restarts.sum()), "time")
        yield f"steps follow another start of a program {starts}: the time before is that of no step"
    if _has_rates(lines) and samples.of is None:
        yield f"printed rates may be of one rank or of all: {samples.why}"


def _windows(path: str, rank: int, lines: StepLines, windows: Durations, zero: int) -> pa.Table:
    took = np.rint(windows.step_s * windows.steps * 1e9)
    pause_s, ns, unit = lines.of("pause_s"), lines.stamps_ns, lines.stamp_unit_ns
    ends = np.cumsum(took if pause_s is None else took + 1e9 * pause_s[windows.at])
    if ns is not None and len(took):
        stamped = (ns[windows.at] - zero).astype(np.float64)
        between = np.append(0.0, np.diff(stamped) - took[1:])
        # If timestamps are coarser than a window, the windows' own times are more precise.
        by_times = np.cumsum(took + np.where(between > _UNITS_OF_PAUSE * unit, between, 0.0))
        ends = stamped if unit <= np.median(took) else by_times
    furthest = np.abs(ends).max(initial=0) + took.max(initial=0)
    if not np.isfinite(furthest) or furthest > LATEST_NS:
        raise UnreadableError(f"{path}: its steps take a century: these are no times of steps")
    end = ends.astype(np.int64)
    # Longer waits than steps are damage.
    data = None if windows.data_s is None else np.minimum(windows.data_s, windows.step_s)
    epoch = lines.epochs
    return windows_table(
        rank,
        step=lines.last_step[windows.at] + 1,
        epoch=None if epoch is None else epoch[windows.at],
        begin=end - took.astype(np.int64),
        end=end,
        steps=windows.steps,
        data=None if data is None else np.rint(data * windows.steps * 1e9).astype(np.int64),
    )


# -- What tells whether two logs are of the same job ----------------------------------------------

# Settings that are the same on any number of ranks, in lower case: numbers and texts.
_SIZES, _TEXTS = (
    tuple(names.encode().split())
    for names in (
        "hidden_size d_model n_embd num_layers n_layers n_layer n_heads n_head num_attention_heads "
        "vocab_size seq_length seq_len max_seq_len block_size",
        "arch backbone model model_name model_type model_name_or_path dataset",
    )
)
_VALUE = (
    rb"(?:%b)(?=[\"']?(?:\s{0,3}[:=]\s{0,3}|\s?\.{3,}\s?)[\"']?"
    rb"(?:(?P<number>\d{1,9})(?![\w.])|(?P<text>[a-z/][\w./+-]{1,60})))"
)
# Timers have such names, too, and other words before them.
_WITHIN = re.compile(rb"(?:\w|(?:^|[^-])-|[\w-]--)\Z")
_PARAMETERS = re.compile(
    rb"(?:number of|num\.?|total) (?:model |trainable )?param(?:eter)?s?[^\d\n]{1,24}"
    rb"([\d.,]{1,20}\s?[mb]?)"
    rb"|\b(\d[\d.,]{0,20}\s?[mb]?) (?:model |trainable )?parameters\b"
)
_BEFORE_BYTES, _AROUND_BYTES, _LAST_BYTES = 3, 128, 4096


def _job_facts(data: bytes) -> dict[str, Any]:
    """Return the stated settings of the model, and the number that the counter ends at."""
    head = data[:HEAD_BYTES].lower()
    # An expression without the names that are missing is searched several times as fast.
    names = [name for name in (*_SIZES, *_TEXTS) if name in head]
    settings, end = {}, 0
    for match in re.finditer(_VALUE % b"|".join(names), head) if names else ():
        at, kind = match.start(), "number" if match[0] in _SIZES else "text"
        within = _WITHIN.search(head, max(at - _BEFORE_BYTES, 0), at)
        if at >= end and match[kind] and not within:
            settings[match[0].decode()] = match[kind].decode()
            end = match.end(kind)
    for match in re.finditer(rb"param", head):
        at = match.start()
        stated = _PARAMETERS.search(head, max(at - _AROUND_BYTES, 0), at + _AROUND_BYTES)
        if stated is not None and stated.start() <= at:
            number = stated[1] or stated[2]
            settings["parameters"] = number.decode().replace(",", "").strip(" .")
            break
    ends = [
        figure.total
        for line in data[-_LAST_BYTES:].decode("latin-1").splitlines()
        for figure in figures_of(line)
        if figure.total and figure.word.quantity in ("step", "count")
    ]
    return {"job_settings": settings or None, "job_steps": int(ends[-1]) if ends else None}
