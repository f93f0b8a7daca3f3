"""A run against its baselines: the same job on synthetic data, on as many ranks and on one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.run import Run, newest_first

from ..ledger.ledger import CAUSES, Ledger

#: What must be alike for a comparison to say something; the rest of the facts may differ.
COMPARED = (
    "model",
    "parameters",
    "batch_size",
    "optimizer",
    "backward_passes_per_step",
    "steps_per_execution",
    "framework",
    "versions",
    "threads",
)


@dataclass(frozen=True)
class Decomposition:
    """Where the step goes between one rank, N ranks on synthetic data and N ranks on real data.

    Milliseconds per step, each with its interval. By cause, real − synthetic is exactly the sum of four
    differences: input stall, compute, other and allreduce. Synthetic − single is what scale costs.
    """

    #: Real − synthetic.
    loss: Mean
    input_stall: Mean
    compute: Mean
    other: Mean
    allreduce: Mean
    #: Imbalance and exposed allreduce of the synthetic run.
    communication: Mean
    #: Synthetic on N ranks − synthetic on one; None without a run on one rank.
    scale: Mean | None


@dataclass(frozen=True)
class BaselineMatch:
    """Which facts a run and its baseline share, and which they do not."""

    same: tuple[str, ...]
    differs: tuple[str, ...]


def match_baseline(run: Run, baseline: Run) -> BaselineMatch:
    """Which facts are the same and which differ, the latter with both values."""
    hosts = ("hosts", len(run.hosts), len(baseline.hosts))
    return _match([("ranks", run.size, baseline.size), hosts, *_facts(run, baseline)])


def match_single(run: Run, single: Run) -> BaselineMatch:
    """The same for a run on one rank, whose numbers of ranks and hosts are meant to differ."""
    return _match(_facts(run, single))


def find_baseline(run: Run, candidates: Iterable[Run]) -> Run | None:
    """The newest synthetic run that is the same job; None where there is none."""
    if run.synthetic:
        return None
    for candidate in newest_first(candidates):
        if candidate.synthetic and not match_baseline(run, candidate).differs:
            return candidate
    return None


def find_single(run: Run, candidates: Iterable[Run]) -> Run | None:
    """The newest synthetic run of the same job on one rank; None where there is none."""
    if run.size == 1:
        return None
    for candidate in newest_first(candidates):
        if candidate.synthetic and candidate.size == 1 and not match_single(run, candidate).differs:
            return candidate
    return None


def split_baselines(run: Run, baselines: Sequence[Run]) -> tuple[Run | None, Run | None]:
    """Of baselines that were named, the one on as many ranks and the one on a single rank."""
    single = next((one for one in baselines if one.size == 1 and run.size > 1), None)
    rest = [one for one in baselines if one is not single]
    return min(rest, key=lambda one: one.size != run.size, default=None), single


def decompose(real: Ledger, synthetic: Ledger, single: Ledger | None) -> Decomposition:
    """Where the step goes between the three runs; steady steps of each."""
    step, base = _step(real), _step(synthetic)
    by_cause = {
        name: real.mean_ms(name, by_cause=True).minus(synthetic.mean_ms(name, by_cause=True))
        for name in CAUSES
    }
    waiting = mean_with_interval(synthetic.imbalance + synthetic.allreduce).scaled(1e-6)
    return Decomposition(
        loss=step.minus(base),
        input_stall=by_cause["input"],
        compute=by_cause["compute"],
        other=by_cause["other"],
        allreduce=by_cause["allreduce"],
        communication=waiting,
        scale=None if single is None else base.minus(_step(single)),
    )


def _step(ledger: Ledger) -> Mean:
    return mean_with_interval(ledger.total).scaled(1e-6)


def _facts(run: Run, other: Run) -> list[tuple[str, object, object]]:
    return [(name, run.fact(name), other.fact(name)) for name in COMPARED]


def _match(pairs: Sequence[tuple[str, object, object]]) -> BaselineMatch:
    same = tuple(name for name, own, other in pairs if own == other and own is not None)
    differs = tuple(
        f"{name}: {own} here, {other} in the baseline" for name, own, other in pairs if own != other
    )
    return BaselineMatch(same, differs)
