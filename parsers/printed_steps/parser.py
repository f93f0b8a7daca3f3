"""Read the lines of a format, and make a log of each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from stallscope.errors import UnreadableError
from stallscope.run import Problem

from ..base import Parsed, Parser
from ..epochs_only import (
    RANK_FROM_WORDS,
    clock_facts,
    epochs_log,
    epochs_table,
    in_one_file,
    rank_in,
    windows_table,
)
from ..mlperf.completing import completed
from ..mlperf.marks import SIZE_FROM, logged
from ..pattern import Pattern, by_rank
from ..pattern_columns import Column
from ..timestamps import Timestamp
from ..world_size import in_words
from .durations import Durations, Value, durations
from .epochs import epochs_between_lines
from .lines import StepLines, step_lines
from .printed_settings import printed_settings
from .rates import RateSamples, rate_samples

# Later times after the first step are damage.
_LATEST_NS = 2**62
#: The rank of lines that no launcher has labelled.
UNLABELLED = -1
# More of a rank's lines are repeated only where several ranks print.
_MOST_REPEATED = 0.5


class PrintedStepsParser(Parser):
    """A format whose lines tell how long steps take."""

    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False
    certain: ClassVar[bool] = False
    #: Patterns of its lines; the first one that a file has counts.
    patterns: ClassVar[Sequence[str]]
    #: Who prints them.
    known_from: ClassVar[str]
    #: What their times are of.
    value: ClassVar[Value]

    @cached_property
    def _patterns(self) -> list[Pattern]:
        return [Pattern(text) for text in self.patterns]

    def recognises(self, file_name: str, head: bytes) -> bool:
        return any(pattern.matches_any(head) for pattern in self._patterns)

    def parse(self, path: str, data: bytes) -> Parsed:
        for pattern in self._patterns:
            columns = pattern.all_columns(data, UNLABELLED)
            if columns is not None:
                logs = logs_of(path, data, columns, self.value, self.known_from)
                if any(log.intervals.num_rows for log in logs):
                    return in_one_file(logs, len(data))
        raise UnreadableError(
            f"{path}: this looks like {self.title}, and no two of its lines tell how long steps took"
        )


def logs_of(
    path: str, data: bytes, columns: Mapping[str, Column], value: Value, known_from: str
) -> list[Parsed]:
    """Make a log of each rank: the times of steps, and of epochs where lines have timestamps.

    Args:
        path: the file.
        data: its content, for what it says of ranks and batches.
        columns: fields of its lines, ``step`` among them; the rank is -1 where no launcher says it.
        value: what their times are of.
        known_from: who prints them.

    Raises:
        UnreadableError: if their times are none of steps.
    """
    mlperf = logged(data)
    printed_by = _Ranks.of(path, data, columns, mlperf.settings.size)
    lines = {rank: step_lines(own) for rank, own in printed_by.columns.items()}
    zero = min(
        (int(ns[0]) for one in lines.values() if (ns := one.stamps_ns) is not None), default=0
    )
    settings = printed_settings(data, printed_by.size)
    known = {
        "known_from": known_from,
        "batch_size": settings.rank_batch,
        **mlperf.settings.facts,
        **printed_by.facts,
    }
    facts = {name: value for name, value in known.items() if value is not None}
    logs = [
        _log(path, rank, own, value, rate_samples(own, settings), zero, facts)
        for rank, own in lines.items()
    ]
    return completed(logs, mlperf, zero)


def _log(
    path: str,
    rank: int,
    lines: StepLines,
    value: Value,
    samples: RateSamples,
    zero: int,
    facts: Mapping[str, Any],
) -> Parsed:
    found = durations(lines, value, samples.per_step)
    first_epoch = 1 if lines.of("epoch") is not None and lines.columns["epoch"].min() == 1 else 0
    tables, facts = [], {**facts, **_clock_facts(lines, zero), **_rate_facts(lines, samples)}
    if found is not None:
        facts |= found.facts
        tables.append(_windows(path, rank, lines, found, zero, first_epoch))
    epochs = None
    if lines.of("epoch") is not None:
        epochs = epochs_between_lines(lines.columns, zero, first_epoch)
    if epochs is not None and len(epochs.number):
        facts |= {"epoch_precision_ms": epochs.half_ms, "first_epoch": int(epochs.number.min())}
        tables.append(epochs_table(rank, epochs.number, epochs.begin, epochs.end))
    problems = [Problem(path, what) for what in _problems(rank, lines, samples, bool(tables))]
    log = epochs_log(path, rank=rank, facts=facts, epochs=(), ended=False, problems=problems)
    return replace(log, intervals=pa.concat_tables(tables)) if tables else log


@dataclass(frozen=True)
class _Ranks:
    """The ranks whose lines a file has, and what it says of them."""

    columns: Mapping[int, Mapping[str, Column]]
    #: The number of ranks that trained; None if the file does not say it.
    size: int | None
    facts: Mapping[str, Any]

    @classmethod
    def of(
        cls, path: str, data: bytes, columns: Mapping[str, Column], in_mlperf: int | None
    ) -> _Ranks:
        """Find the ranks by launchers' labels, else by the path, else by what the program says.

        Args:
            path: the file.
            data: its content.
            columns: fields of its lines.
            in_mlperf: the number of ranks in MLPerf's metadata.
        """
        said, by_path = in_words(data), rank_in(path)[0]
        found = by_rank(columns)
        labelled = [rank for rank in found if rank >= 0]
        size = said.size
        facts: dict[str, Any] = {} if size is None else {"size_from": "what the log says"}
        if labelled:
            # What no launcher has labelled is the launcher's own.
            found.pop(UNLABELLED, None)
            if size is None and len(labelled) > 1:
                size = max(labelled) + 1
                facts["size_from"] = "ranks of the lines"
        else:
            own = by_path if by_path is not None else said.rank
            found = {own or 0: found[UNLABELLED]}
            if by_path is None and said.rank is not None:
                facts["rank_from"] = RANK_FROM_WORDS
        if size is None and in_mlperf is not None:
            size = in_mlperf
            facts["size_from"] = SIZE_FROM
        return cls(found, size, facts if size is None else {"size": size, **facts})


def _clock_facts(lines: StepLines, zero: int) -> dict[str, Any]:
    ns = lines.stamps_ns
    if ns is None:
        return clock_facts(None, zero)
    zone_known = bool(lines.columns["zone_known"][0])
    return clock_facts(Timestamp(int(ns[0]), zone_known, lines.stamp_unit_ns), zero)


def _rate_facts(lines: StepLines, samples: RateSamples) -> dict[str, Any]:
    """Return what is known of printed rates; nothing where none are printed."""
    if not _has_rates(lines):
        return {}
    known = {"rate_samples": samples.per_step, "rate_of": samples.of, "rate_why": samples.why}
    return {name: value for name, value in known.items() if value is not None}


def _has_rates(lines: StepLines) -> bool:
    return lines.of("rate") is not None or lines.of("mean_rate") is not None


def _problems(rank: int, lines: StepLines, samples: RateSamples, timed: bool) -> Iterator[str]:
    if not timed:
        yield "lines have no times: no timestamps, or there is only one line"
    if lines.repeated > _MOST_REPEATED * len(lines):
        yield (
            f"{lines.repeated:,} lines of rank {rank} are about the step of the line before: several "
            "ranks print into this file without labels, and one line of each step is used"
        )
    if _has_rates(lines) and samples.of is None:
        yield f"whose rates are printed is not known: {samples.why}"


def _windows(
    path: str, rank: int, lines: StepLines, found: Durations, zero: int, first_epoch: int
) -> pa.Table:
    took = np.rint(found.step_s * found.steps * 1e9)
    ends = np.cumsum(took)
    ns = lines.stamps_ns
    # Timestamps coarser than a window say less than the windows' own times.
    if ns is not None and lines.stamp_unit_ns <= np.median(took):
        ends = (ns[found.at] - zero).astype(np.float64)
    if not np.isfinite(ends).all() or np.abs(ends).max(initial=0) > _LATEST_NS:
        raise UnreadableError(f"{path}: its steps take a century: these are no times of steps")
    end = ends.astype(np.int64)
    epoch, data = lines.of("epoch"), found.data_s
    return windows_table(
        rank,
        step=lines.last_step[found.at] + 1,
        epoch=None if epoch is None else epoch[found.at] - first_epoch,
        begin=end - took.astype(np.int64),
        end=end,
        steps=found.steps,
        data=None if data is None else np.rint(data * found.steps * 1e9).astype(np.int64),
    )
