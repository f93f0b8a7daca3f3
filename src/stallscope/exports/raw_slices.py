"""Make slices from ranks' own timestamps: validation, checkpoints, and steps outside of the ledger."""

from __future__ import annotations

import numpy as np
import pandas as pd

from stallscope.arrays.blocks import NULL
from stallscope.arrays.types import Bools, Ints

from .generations import Generation
from .selection import Selection

STEP = "step"
_END = np.iinfo(np.int64).max


def raw_slices(
    generation: Generation, selection: Selection, begin: Ints, end: Ints
) -> pd.DataFrame:
    """Make the selected slices of a generation, cut where the ledger's steps are.

    Args:
        generation: on the time line.
        selection: steps and ranks.
        begin: starts of the ledger's steps, on the time line.
        end: their ends.

    Returns:
        A row per slice, ordered by start; slices of a rank do not overlap. ``rank`` is its position in
        the generation, ``begin`` and ``end`` are nanoseconds on the time line, and ``ns`` is the
        recorded duration, even if the slice was cut. An unknown ``epoch`` is -1.
    """
    slices = pd.concat([*_of_timestamps(generation, selection), _between(generation, selection)])
    at = np.searchsorted(generation.ledger.steps, slices["step"])
    slices["begin"] = np.maximum(slices["begin"], np.append(generation.span[0], end)[at])
    slices["end"] = np.minimum(slices["end"], np.append(begin, _END)[at])
    slices = slices.sort_values(["rank", "begin"], ignore_index=True)
    # No slice starts before the previous one of its rank has ended.
    ends = slices.groupby("rank")["end"].cummax().groupby(slices["rank"]).shift(fill_value=-_END)
    slices["begin"] = np.maximum(slices["begin"], ends)
    return slices[slices["end"] > slices["begin"]].sort_values("begin", kind="stable")


def _of_timestamps(generation: Generation, selection: Selection) -> list[pd.DataFrame]:
    """Make slices of steps outside of the ledger: input and compute, or the whole step."""
    aligned = generation.aligned
    outside = (generation.in_ledger < 0) & selection.steps(aligned.steps)
    if not outside.any():
        return []
    parts = []
    for rank in selection.of(aligned.ranks).tolist():
        begin, data, ready, reduced, end = (
            generation.on_line(times[:, rank], rank)
            for times in (aligned.begin, aligned.data, aligned.ready, aligned.reduced, aligned.end)
        )
        staged = outside & aligned.measured[:, rank]
        # All timestamps, but not measured: the clock was set within this step.
        torn = (np.stack([begin, data, ready, reduced, end]) != NULL).all(axis=0) & ~staged
        until = np.where(end == NULL, next_begin(generation, begin), end)
        whole = outside & ~staged & ~torn & (begin != NULL) & (until != NULL)
        parts += [
            _some(generation, staged, rank, "input", begin, data),
            _some(generation, staged, rank, "compute", data, ready),
            _some(generation, whole, rank, STEP, begin, until),
        ]
    return parts


def next_begin(generation: Generation, begin: Ints) -> Ints:
    """Return when the next step starts on the same rank; NULL if none follows in its epoch."""
    aligned = generation.aligned
    follows = (np.diff(aligned.steps) == 1) & ~aligned.session_start[1:]
    follows &= aligned.epochs[1:] == aligned.epochs[:-1]
    after = np.full(len(begin), NULL)
    after[:-1] = np.where(follows, begin[1:], NULL)
    return after


def _some(
    generation: Generation, chosen: Bools, rank: int, kind: str, begin: Ints, end: Ints
) -> pd.DataFrame:
    columns = {
        "begin": begin,
        "end": end,
        "kind": kind,
        "step": generation.aligned.steps,
        "epoch": generation.aligned.epochs,
        "ns": end - begin,
    }
    return pd.DataFrame(columns | {"rank": rank})[chosen]


def _between(generation: Generation, selection: Selection) -> pd.DataFrame:
    """Make slices of validation and checkpoints, each with the next step, or the last one."""
    aligned, intervals = generation.aligned, generation.aligned.intervals
    next_at = np.searchsorted(aligned.steps, intervals.step)
    step = aligned.steps[np.minimum(next_at, len(aligned.steps) - 1)]
    shift = generation.shift[intervals.rank_index]
    columns = {
        "begin": intervals.begin + shift,
        "end": intervals.end + shift,
        "kind": intervals.kind,
        "step": intervals.step,
        "epoch": np.where(next_at > 0, aligned.epochs[next_at - 1], -1),
        "ns": intervals.end - intervals.begin,
        "rank": intervals.rank_index,
    }
    chosen = np.isin(intervals.rank_index, selection.of(aligned.ranks)) & selection.steps(step)
    return pd.DataFrame(columns)[chosen]
