"""Validation and checkpoints: who does them, and what that costs the job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.blocks import NULL
from stallscope.arrays.types import Ints
from stallscope.formatting.lists import counted, ranks_in_words

from ..advice import checkpoints_on_rank_0, in_words, shared_validation, work_alone
from .finding import Finding
from .records import Records

# What costs less of the job is not worth a change.
_WORTHWHILE = 0.02
# Ranks that validate the same data take about as long, whatever they wait for in between.
_ALIKE = 0.5


def validation_on_all_ranks(records: Records) -> Iterator[Finding]:
    seconds = _seconds_per_rank(records, "validation")
    spent = np.array(list(seconds.values()))
    if len(spent) < 2 or spent.min() < _ALIKE * spent.max() or not records.seconds:
        return
    cost = float(np.median(spent))
    share = cost / records.seconds
    if share <= _WORTHWHILE:
        return
    yield Finding(
        "validation_on_all_ranks",
        "info",
        "Several ranks validate",
        f"{len(spent)} of {len(records.ranks)} ranks ({ranks_in_words(list(seconds))}) validate, each "
        f"for about as long: {cost:.1f} s of every rank, {share:.1%} of the job. Unless each has "
        "its own part of the validation data, they all compute the same.",
        in_words(shared_validation(records.setup)),
    )


def checkpoint_on_all_ranks(records: Records) -> Iterator[Finding]:
    seconds = _seconds_per_rank(records, "checkpoint")
    hosts: dict[str, list[int]] = {}
    for rank in seconds:
        hosts.setdefault(records.last_log[rank].host, []).append(rank)
    host, together = max(hosts.items(), key=lambda pair: len(pair[1]), default=("", []))
    everybody = len(seconds) == records.run.size > 1
    if len(together) < 2 and not everybody:
        return
    who = ranks_in_words(list(seconds))
    where = f", {len(together)} of them on host {host}," if len(together) > 1 else ""
    number = int(np.count_nonzero(records.intervals.kind == "checkpoint"))
    yield Finding(
        "checkpoint_on_all_ranks",
        "warning",
        "Several ranks write checkpoints",
        f"{who[0].upper()}{who[1:]}{where} wrote {counted(number, 'checkpoint')} in all: with the "
        "same path they overwrite each other, and a file can end up torn.",
        in_words(checkpoints_on_rank_0(records.setup)),
    )


def rank_0_alone(records: Records) -> Iterator[Finding]:
    alone = _alone(records)
    if alone is None or not records.seconds:
        return
    cost = float(_waited(records, alone).sum()) / 1e9
    share = cost / records.seconds
    if share <= _WORTHWHILE:
        return
    did = " and ".join(counted(number, kind) for kind, number in alone.numbers.items())
    yield Finding(
        "rank_0_alone",
        "info",
        f"Rank {alone.rank} works while the others wait",
        f"Rank {alone.rank} did {did} alone; the others waited {cost:.1f} s for it, {share:.1%} of "
        "the job.",
        in_words(*work_alone(records.setup, alone.numbers)),
    )


@dataclass(frozen=True)
class _Alone:
    """What one rank did between steps and no other did."""

    rank: int
    #: How often, by kind.
    numbers: dict[str, int]
    #: Before which steps, and how many nanoseconds it took there.
    steps: Ints
    spent: Ints


def _alone(records: Records) -> _Alone | None:
    """The work of the rank with most of it; None where ranks do alike, or a rank left no log."""
    work = records.intervals.take(np.isin(records.intervals.kind, ("validation", "checkpoint")))
    if len(records.ranks) < max(2, records.run.size) or not len(work.rank):
        return None
    work = work.take(np.lexsort((work.rank, work.kind, work.step)))
    # Entries of one kind before the same step lie together now, by rank.
    new = (np.diff(work.step) != 0) | (work.kind[1:] != work.kind[:-1])
    starts = np.flatnonzero(np.concatenate([[True], new]))
    ends = np.append(starts[1:], len(work.rank)) - 1
    one = np.repeat(work.rank[starts] == work.rank[ends], ends - starts + 1)
    if not one.any():
        return None
    work = work.take(one)
    rank = int(np.bincount(work.rank, work.end - work.begin).argmax())
    work = work.take(work.rank == rank)
    kinds, numbers = np.unique(work.kind, return_counts=True)
    steps, place = np.unique(work.step, return_inverse=True)
    spent = np.bincount(place, work.end - work.begin).astype(np.int64)
    return _Alone(rank, dict(zip(kinds.tolist(), numbers.tolist(), strict=True)), steps, spent)


def _waited(records: Records, alone: _Alone) -> Ints:
    """Nanoseconds by which another rank's next reduction came later for it, per step."""
    reductions = records.reductions
    other = next(rank for rank in reductions.ranks if rank != alone.rank)
    at = records.reduced_by(reductions.ranks.index(other))
    known = (at[1:] != NULL) & (at[:-1] != NULL) & (np.diff(reductions.steps) == 1)
    if not known.any():
        return np.zeros(0, np.int64)
    following, gap = reductions.steps[1:][known], np.diff(at)[known]
    gap -= int(np.median(gap))
    there = np.isin(alone.steps, following)
    steps, spent = alone.steps[there], alone.spent[there]
    own = records.intervals.take(
        (records.intervals.rank == other)
        & np.isin(records.intervals.kind, ("validation", "checkpoint"))
        & np.isin(records.intervals.step, steps)
    )
    busy = np.bincount(np.searchsorted(steps, own.step), own.end - own.begin, len(steps))
    late = gap[np.searchsorted(following, steps)] - busy.astype(np.int64)
    return np.asarray(np.clip(late, 0, spent))


def _seconds_per_rank(records: Records, kind: str) -> dict[int, float]:
    """What each rank that did it at all spent on it, by rank."""
    chosen = records.intervals.take(records.intervals.kind == kind)
    ranks, place = np.unique(chosen.rank, return_inverse=True)
    seconds = np.bincount(place, chosen.end - chosen.begin) / 1e9
    return dict(zip(ranks.tolist(), seconds.tolist(), strict=True))
