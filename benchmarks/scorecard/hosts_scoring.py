"""Score the analysis of a slow host: the host, the reason, and errors of clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from hosts_plan import CLEAN, CLOCK, REASONS, Case

from stallscope.analysis import Analysis
from stallscope.analysis.steps.alignment import AlignedSteps
from stallscope.arrays.blocks import NULL

#: A line of the scores: the case and the findings.
Score = dict[str, Any]

# The monotonic clocks of the lab's hosts differ by this.
_APART_MS = 86_400_000.0


def score(case: Case, analysis: Analysis, clock_errors: Sequence[float] | None = None) -> Score:
    """Score one run.

    Args:
        case: the fault and its host.
        analysis: of the recorded run.
        clock_errors: the errors of the estimated clocks, if the trainings measured the true ones;
            otherwise the clocks are a day apart.
    """
    verdict = analysis.bottleneck
    clocks = [
        [
            rank.clock_offset_ms - at * _APART_MS if clock_errors is None else clock_errors[at],
            rank.clock_uncertainty_ms,
        ]
        for at, rank in enumerate(analysis.ranks)
        if at and rank.clock_offset_ms is not None and rank.clock_uncertainty_ms is not None
    ]
    return {
        "name": case.name,
        **asdict(case),
        "kind": verdict.kind,
        "cause": verdict.cause,
        "ranks": list(verdict.ranks),
        "on_hosts": list(verdict.hosts),
        "why": [reason.code for reason in verdict.why],
        "clocks_ms": [[round(error, 4), round(bound, 4)] for error, bound in clocks],
        "evidence": verdict.evidence,
    }


def clock_errors_ms(
    aligned: AlignedSteps, clocks: Sequence[Sequence[Sequence[int]]]
) -> list[float]:
    """Return the mean error of each rank's estimated clock over the steps.

    Args:
        aligned: the steps, on one clock.
        clocks: two readings per rank of its own monotonic clock and the machine's, in nanoseconds.
    """
    known = (aligned.begin != NULL).all(axis=1)
    estimated = aligned.clocks.offset[known][:, aligned.clocks.of_rank].astype(np.int64)
    ahead = []
    for rank, pairs in enumerate(clocks):
        process, machine = np.array(pairs, np.int64).T
        moments = process - machine + rank * int(_APART_MS * 1e6)
        slope = float(moments[1] - moments[0]) / float(process[1] - process[0])
        begin = aligned.begin[known, rank] + estimated[:, rank]
        # Floats have too few digits for nanoseconds since 1970.
        ahead.append(moments[0] + (slope * (begin - process[0])).astype(np.int64))
    errors = [estimated[:, rank] - ahead[rank] + ahead[0] for rank in range(len(clocks))]
    return [float(of_rank.mean()) / 1e6 for of_rank in errors]


def host_right(score: Score) -> bool:
    """Return whether only the faulty host is named, by its rank or its name; none in a healthy run."""
    if score["what"] in (CLEAN, CLOCK):
        return not score["ranks"] and not score["on_hosts"]
    host = f"h{score['rank'] + 1}"
    if score["what"] == "link":
        return score["cause"] == "network" and score["on_hosts"] == [host] and not score["ranks"]
    return score["ranks"] == [score["rank"]] and score["on_hosts"] in ([], [host])


def why_right(score: Score) -> bool:
    """Return whether the first reason is right."""
    return bool(score["why"]) and score["why"][0] in REASONS[score["what"]]


def clocks_within(score: Score) -> list[bool]:
    """Return for each clock but the first whether its error is within its bound."""
    return [abs(error) <= bound for error, bound in score["clocks_ms"]]
