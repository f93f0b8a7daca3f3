"""Answer what-if questions: more bandwidth, other numbers of ranks.

The run alone answers ``bandwidth:4``. ``ranks:64`` needs a model of the communication, fitted to the run
and to runs of the same job on other numbers of ranks. Beyond these numbers it extrapolates; with a
single size, the interval covers everything between pure bandwidth and pure latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from stallscope.arrays.stats import Mean
from stallscope.words import Fix

from ..gains.baseline import match_single
from ..gains.what_if import WhatIf
from ..ledger.ledger import Ledger
from ..network.communication import fit_communication, project, with_bandwidth
from ..result import Analysis
from ..scaling.projection import communication_of

_MOST_RANKS = 1_000_000


def ask(question: Fix, analysis: Analysis, others: Sequence[Analysis] = ()) -> WhatIf | None:
    """Answer a question; None if the run has no ledger to replay, or shows no communication.

    Args:
        question: another bandwidth, or another number of ranks, from ``parse``.
        analysis: the run.
        others: further runs; those of the same job on other numbers of ranks are used.
    """
    ledger = analysis.steady
    if ledger is None or analysis.run.times_host_work:
        return None
    if question.kind == "bandwidth":
        # The run does not show a network with more bandwidth.
        return replace(with_bandwidth(ledger, float(question.value)), extrapolated=True)
    return _on_ranks(int(question.value), analysis, ledger, others)


def parse(text: str) -> Fix:
    """Return a user's question: ``bandwidth:FACTOR`` or ``ranks:NUMBER``.

    Raises:
        ValueError: if the text is neither.
    """
    with suppress(ValueError):
        question = Fix.parse(text)
        number = float(question.value)
        if question.kind == "bandwidth" and 0 < number < float("inf"):
            return question
        if question.kind == "ranks" and 1 <= number <= _MOST_RANKS and number == int(number):
            return Fix("ranks", str(int(number)))
    raise ValueError(f"{text!r} is not a what-if question: use bandwidth:4 or ranks:64")


def _on_ranks(
    ranks: int, analysis: Analysis, ledger: Ledger, others: Sequence[Analysis]
) -> WhatIf | None:
    same = [
        candidate
        for candidate in others
        if candidate.run.id != analysis.run.id
        and candidate.run.size != analysis.run.size
        and candidate.run.synthetic == analysis.run.synthetic
        and not match_single(analysis.run, candidate.run).differs
    ]
    measured = [
        allreduce for allreduce in map(communication_of, [analysis, *same]) if allreduce is not None
    ]
    model = fit_communication(measured)
    if model is None:
        return None
    sizes = [candidate.run.size for candidate in [analysis, *same]]
    projected = project(ranks, analysis.run.size, ledger, model, sizes)
    now = float(ledger.total.mean()) / 1e6
    saved = Mean(now - projected.step_ms.value, None)
    return WhatIf(
        Fix("ranks", str(ranks)), saved, projected.speedup, projected.ci95, projected.extrapolated
    )
