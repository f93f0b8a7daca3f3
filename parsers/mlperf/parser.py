"""Make a log of each rank from what its events mark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from stallscope.errors import UnreadableError
from stallscope.run import Problem

from ..base import Parsed, Parser
from ..epochs_only import (
    RANK_FROM_WORDS,
    clock_facts,
    epochs_log,
    in_one_file,
    rank_in,
    rounded_to,
)
from ..timestamps import Timestamp
from ..world_size import in_words
from . import steps
from .lines import LINE
from .marks import SIZE_FROM, Fit, Logged, Settings, logged

KNOWN_FROM = "what MLPerf's logger printed"

# Of so few steps an epoch tells too little.
_FEWEST_STEPS = 5
_MIXED = (
    "several ranks print into this file without labels: spans are from the first to the last rank"
)
_NO_STEPS = "a throughput is logged without numbers of steps or samples; its unit is unknown"


class MlperfParser(Parser):
    name: ClassVar[str] = "mlperf"
    title: ClassVar[str] = "logs of MLPerf"
    suffix: ClassVar[str] = ".log"
    has_steps: ClassVar[bool] = False

    def recognises(self, file_name: str, head: bytes) -> bool:
        return LINE.search(head) is not None

    def parse(self, path: str, data: bytes) -> Parsed:
        found = logged(data)
        starts = [fit.first_ns for marks in found.ranks.values() for fit in marks.trainings]
        zero = min((ns for ns in starts if ns is not None), default=None)
        if zero is None:
            raise UnreadableError(f"{path}: MLPerf's lines have no start and end of anything")
        by_path, said = rank_in(path)[0], in_words(data)
        facts = {"known_from": KNOWN_FROM, **_job_facts(found.settings, said.size, found.ranks)}
        if None in found.ranks and by_path is None and said.rank is not None:
            facts["rank_from"] = RANK_FROM_WORDS
        own = by_path if by_path is not None else said.rank or 0
        logs = [
            _log(path, own if rank is None else rank, part, fit, zero, facts, found)
            for rank, marks in sorted(found.ranks.items(), key=lambda one: one[0] or 0)
            for part, fit in enumerate(marks.trainings)
        ]
        return in_one_file(logs, len(data))


def _job_facts(
    settings: Settings, said: int | None, ranks: Collection[int | None]
) -> dict[str, Any]:
    """Return what the events say of the job, as facts of its logs.

    Args:
        settings: what they say.
        said: the number of ranks that the log says in words.
        ranks: those that launchers have labelled, and None for lines without labels.
    """
    facts: dict[str, Any] = {}
    labelled = [rank for rank in ranks if rank is not None]
    for size, source in (
        (said, "what the log says"),
        (max(labelled) + 1 if len(labelled) > 1 else None, "ranks of the lines"),
        (settings.size, SIZE_FROM),
    ):
        if size is not None and "size" not in facts:
            facts |= {"size": size, "size_from": source}
    batch = settings.global_batch
    if batch is not None and "size" in facts and batch % facts["size"] == 0:
        facts["batch_size"] = batch // facts["size"]
    return facts | settings.facts


def _log(
    path: str,
    rank: int,
    part: int,
    fit: Fit,
    zero: int,
    facts: Mapping[str, Any],
    found: Logged,
) -> Parsed:
    resolution = max(marks.resolution_ns for marks in found.ranks.values())
    windows = steps.windows(fit, found.settings.global_batch, resolution)
    known = {
        **facts,
        **clock_facts(Timestamp(zero, True, resolution), zero),
        **_precision_facts(fit, found.settings, resolution),
    }
    if windows is not None:
        known |= windows[0].facts
    if fit.single_epochs:
        known["first_epoch"] = min(fit.single_epochs).number - fit.first
    log = epochs_log(
        path,
        rank=rank,
        part=part,
        facts=known,
        epochs=fit.epochs_since(zero),
        ended=fit.stop is not None,
        end=None if fit.stop is None else max(fit.stop - zero, 0),
        validations=fit.validations_since(zero),
        problems=[Problem(path, what) for what in _problems(fit, windows is not None)],
    )
    if windows is None:
        return log
    table = steps.table_of(rank, *windows, zero)
    return replace(log, intervals=pa.concat_tables([log.intervals, table]))


def _precision_facts(fit: Fit, settings: Settings, resolution_ns: int) -> dict[str, Any]:
    """Return the source of times and how precise they are, where no events say numbers of steps."""
    to = rounded_to(resolution_ns / 1e6)
    epochs = fit.single_epochs
    # Epochs of a block follow each other, with evaluations between them.
    spans = [(one.end - one.begin, 1) for one in epochs]
    spans = spans or [(block.span.end - block.span.begin, block.epochs) for block in fit.blocks]
    if not spans:
        return {"precision": f"the whole run, to {to}"}
    facts: dict[str, Any] = {
        "precision": f"epochs, to {to}" if epochs else f"blocks of epochs, to {to}"
    }
    if epochs:
        facts["epoch_precision_ms"] = resolution_ns / 1e6
    if settings.samples is None or settings.global_batch is None:
        return facts
    # The first steps compile and fill caches.
    counted = spans[1:] or spans
    steps = settings.samples / settings.global_batch
    step_ms = sum(ns for ns, _ in counted) / 1e6 / sum(count for _, count in counted) / steps
    if steps >= _FEWEST_STEPS:
        # The last batch of an epoch is left out or smaller: an epoch has up to one step more or less.
        facts |= {"step_ms": step_ms, "step_precision_ms": step_ms / steps}
    return facts


def _problems(fit: Fit, has_windows: bool) -> Iterator[str]:
    if fit.mixed:
        yield _MIXED
    if fit.blocks and not fit.single_epochs:
        yield "blocks of several epochs are logged, and not how long each epoch took"
    if fit.has_throughput and not has_windows:
        yield _NO_STEPS
