"""Pair spans of waiting for a batch with spans of working on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple

import numpy as np

from stallscope.arrays.types import Bools, Ints

from .spans import COMPUTE, EPOCH, EVALUATION, FETCH, LOOP, Spans, StepSpans, Stream

# Spans of two kinds alternate if this share of them does.
_ALTERNATING = 0.95
_FEWEST = 2
# Times are rounded to the trace's unit.
_ROUNDED = 2
# If there are more names, the most frequent ones are tried.
_MOST_STREAMS = 20


class Steps(NamedTuple):
    """Steps of one process as columns: their begin, the arrival of the batch, their end; nanoseconds."""

    begin: Ints
    data: Ints
    end: Ints
    #: -1 where unknown.
    epoch: Ints

    def chosen(self, which: Bools) -> Steps:
        """Return some of the steps."""
        return Steps(*(column[which] for column in self))


class Between(NamedTuple):
    """Spans of epochs or evaluations as columns, nanoseconds."""

    begin: Ints
    end: Ints


def steps_of(trace: StepSpans, pid: int) -> Steps | None:
    """Return the steps of a process; None if it has none."""
    candidates = [_paired(waits, works) for waits, works in _loops(trace, pid)]
    if not candidates:
        candidates = [
            steps
            for waits, works in _alternating(trace, pid)
            if len((steps := _paired(waits, works)).begin)
            >= _ALTERNATING * max(len(waits), len(works))
        ]
    best = max(candidates, key=lambda steps: len(steps.begin), default=None)
    return None if best is None or len(best.begin) < _FEWEST else best


def epochs_of(trace: StepSpans, pid: int) -> Between:
    """Return the epochs of a process in order; none without spans of epochs."""
    spans = max(trace.named(pid, EPOCH).values(), key=len, default=Spans())
    return Between(spans.begin, spans.end)


def without_evaluations(trace: StepSpans, pid: int, steps: Steps) -> tuple[Steps, Between]:
    """Separate the steps of evaluations from those of training.

    Returns:
        the steps of training, and the evaluations.
    """
    named = trace.named(pid, EVALUATION).values()
    begin = np.concatenate([np.zeros(0, np.int64), *(spans.begin for spans in named)])
    end = np.concatenate([np.zeros(0, np.int64), *(spans.end for spans in named)])
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    # Drop evaluations within evaluations.
    outer = np.append(True, end[1:] > np.maximum.accumulate(end)[:-1])[: len(end)]
    begin, end = begin[outer], end[outer]
    at = np.searchsorted(begin, steps.begin, side="right") - 1
    inside = (at >= 0) & (steps.begin < end[np.maximum(at, 0)] if len(end) else False)
    training = steps.chosen(~inside)
    if len(training.begin) < _FEWEST:
        # The whole program has a name like an evaluation.
        return steps, Between(begin[:0], end[:0])
    return training, Between(begin, end)


def _loops(trace: StepSpans, pid: int) -> Iterator[tuple[Spans, Spans]]:
    parts: dict[tuple[int, str], dict[str, Spans]] = {}
    for stream, spans in trace.named(pid, LOOP).items():
        match = LOOP.fullmatch(stream.name)
        assert match is not None
        part = "iter" if match["part"] == "iter" else "work"
        if not EPOCH.fullmatch(match["loop"]):
            parts.setdefault((stream.tid, match["loop"]), {})[part] = spans
    return ((pair["iter"], pair["work"]) for pair in parts.values() if len(pair) > 1)


def _alternating(trace: StepSpans, pid: int) -> Iterator[tuple[Spans, Spans]]:
    waits, works = (_most(trace.named(pid, form)) for form in (FETCH, COMPUTE))
    for (wait_stream, waiting), (work_stream, working) in product(waits.items(), works.items()):
        if wait_stream.tid == work_stream.tid:
            yield waiting, working


def _most(streams: Mapping[Stream, Spans]) -> dict[Stream, Spans]:
    chosen = sorted(streams.items(), key=lambda pair: len(pair[1]), reverse=True)
    return dict(chosen[:_MOST_STREAMS])


def _paired(waits: Spans, works: Spans) -> Steps:
    """Pair each wait with the work between it and the next wait; waits without work are dropped."""
    at = np.searchsorted(works.begin, waits.end - _ROUNDED * 1_000, side="left")
    until = np.append(waits.begin[1:], np.iinfo(np.int64).max)[: len(waits)]
    has_work = at < len(works)
    at = np.minimum(at, max(len(works) - 1, 0))
    paired = has_work & (works.begin[at] >= waits.begin) & (works.begin[at] < until)
    at = at[paired]
    end = np.minimum(np.maximum(works.end[at], waits.end[paired]), until[paired])
    data = np.minimum(waits.end[paired], end)
    return Steps(waits.begin[paired], data, end, works.epoch[at])
