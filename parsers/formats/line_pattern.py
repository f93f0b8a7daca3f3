"""Read lines that a user describes by a pattern:

    --read-as 'pattern:{time} epoch {epoch} step {step}'

A pattern describes the start of a line. Letters stand for themselves, blanks for any blanks, and

    {time}       a timestamp of any known form, or seconds since 1970
    {rank}       the rank, if no launcher has labelled the line
    {epoch}      the epoch
    {step}       the step, counted over the job or over the epoch
    {steps}      the number of steps of an epoch
    {seconds}    the duration of the step; of the epoch, without {step}
    {ms}         the same in milliseconds
    {data}       the seconds of it in which the step waited for its data
    {rate}       samples per second
    {mean_seconds}, {mean_data}    means over all steps of the epoch so far
    {}           anything

With ``{step}``, lines become a series of step times: as printed, else by rates and batch sizes, else
between timestamps. Without it, an epoch lasts ``{seconds}``, or else from its first line to that of the
next epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from stallscope.errors import UnreadableError
from stallscope.run import Problem

from ..base import Parsed, Parser
from ..epochs_only import clock_facts, epochs_log, in_one_file, rounded_to
from ..lines.line_blocks import Column
from ..pattern import Pattern, by_rank, timestamp_at
from ..rank_names import FROM_LABELS, rank_in
from .printed_steps import NO_RANK, Meaning, logs_of, with_year_note
from .printed_steps.rank_logs import (
    Epochs,
    epochs_as_printed,
    epochs_between_lines,
    first_epoch,
)

KNOWN_FROM = "lines of the given pattern"

_MEANING = Meaning(KNOWN_FROM, "step", is_certain=True)


class LinePatternParser(Parser):
    """Reads lines of one pattern.

    Raises:
        UsageError: if the text is not a pattern.
    """

    name: ClassVar[str] = "pattern"
    title: ClassVar[str] = "lines of a pattern"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False
    certain: ClassVar[bool] = False

    def __init__(self, pattern: str) -> None:
        self.pattern = Pattern(pattern)
        # ``logs_of`` searches the text for the number of ranks.
        self.reads_stated_ranks = "step" in self.pattern.names

    def recognises(self, file_name: str, head: bytes) -> bool:
        return self.pattern.occurs_in(head)

    def parse(self, path: str, data: bytes) -> Parsed:
        has_steps = "step" in self.pattern.names
        own_rank = NO_RANK if has_steps else rank_in(path)[0] or 0
        columns = self.pattern.all_columns(data, own_rank)
        if columns is None:
            raise UnreadableError(f"{path}: no line matches the pattern: {self.pattern.text!r}")
        if has_steps:
            return in_one_file(logs_of(path, data, columns, _MEANING), len(data))
        first, *others = epoch_logs(path, by_rank(columns), KNOWN_FROM)
        return in_one_file([with_year_note(first, columns), *others], len(data))


def epoch_logs(
    path: str, ranks: Mapping[int, Mapping[str, Column]], known_from: str
) -> list[Parsed]:
    """Make a log of each rank whose lines are about epochs.

    Args:
        path: the file.
        ranks: the fields of each rank's lines: ``epoch``, ``timed``, and ``seconds`` if printed.
        known_from: what the lines are, for the report.
    """
    stamps = [columns["ns"][columns["timed"]] for columns in ranks.values()]
    zero = min((int(ns.min()) for ns in stamps if len(ns)), default=0)
    first = first_epoch(ranks.values())
    logs: list[Parsed] = []
    for rank, columns in ranks.items():
        if "seconds" in columns:
            epochs = epochs_as_printed(columns, zero, first)
        else:
            epochs = epochs_between_lines(columns, zero, first)
        log = epochs_log(
            path,
            rank=rank,
            facts={**_facts(columns, epochs, zero, len(ranks)), "known_from": known_from},
            # Whether the job was complete is unknown.
            ended=False,
            tables=[epochs.table(path, rank)],
            problems=[] if len(epochs.number) else [Problem(path, _NO_TIMES)],
        )
        logs.append(log)
    return logs


_NO_TIMES = "the lines have no times: they have no timestamps, or there is only one line"


def _facts(columns: Mapping[str, Column], epochs: Epochs, zero: int, ranks: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"precision": "no times"}
    if len(epochs.number):
        facts |= {"precision": f"epochs, to {rounded_to(epochs.half_ms)}", **epochs.facts}
    if ranks > 1:
        facts |= {"size": ranks, "size_from": FROM_LABELS}
    timed = np.flatnonzero(columns["timed"])
    if not len(timed):
        return facts | clock_facts(None, zero)
    at = timed[0]
    return facts | clock_facts(timestamp_at(columns, at), zero)
