"""Model exposed allreduce: its bandwidth, and its time with more bandwidth or on more ranks.

A ring of N ranks sends 2(N−1)/N times the gradients' bytes over every link, in 2(N−1) sequential
messages; a tree sends them in 2·log₂N messages. Bus bandwidth is 2(N−1)/N × bytes / time, as nccl-tests
defines it. It is comparable between any numbers of ranks, and with the hardware's bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stallscope.arrays.distributions import normal_quantile, optimize, student_quantile
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Floats
from stallscope.collector.netcheck.sizes import bus_bytes
from stallscope.run import Run
from stallscope.words import Fix

from ..gains.what_if import WhatIf, what_if
from ..ledger.ledger import Ledger

# Blom's expected normal order statistics.
_BLOM = 0.375


@dataclass(frozen=True)
class Communication:
    """The communication of a steady step; None if unknown.

    ``bus_bandwidth`` (GB/s) is bytes over *exposed* time. It equals the network's bandwidth if nothing
    is hidden, and exceeds it if backward hides a part. ``hidden_ms`` needs the network's bandwidth.
    """

    gradient_bytes: int
    exposed_ms: Mean
    bus_bandwidth: float | None
    network_bandwidth: float | None
    whole_ms: float | None
    hidden_ms: float | None


def communication(
    ledger: Ledger, size: int, gradient_bytes: object, network_bandwidth: float | None
) -> Communication | None:
    """Describe a run's communication; None for one rank or unknown gradients.

    Args:
        ledger: steady steps.
        size: the number of ranks that trained.
        gradient_bytes: the recorded bytes that every rank reduces in a step.
        network_bandwidth: the network's known bus bandwidth, GB/s.
    """
    if size < 2 or not isinstance(gradient_bytes, int) or gradient_bytes <= 0:
        return None
    exposed = ledger.mean_ms("allreduce")
    bus = bus_bytes(size, gradient_bytes)
    whole = None if network_bandwidth is None else bus / network_bandwidth / 1e6
    return Communication(
        gradient_bytes,
        exposed,
        bus / exposed.value / 1e6 if exposed.value > 0 else None,
        network_bandwidth,
        whole,
        None if whole is None else max(0.0, whole - exposed.value),
    )


def with_bandwidth(ledger: Ledger, factor: float) -> WhatIf:
    """Predict the gain of a multiple of the bandwidth, without latency and without hidden allreduce.

    If a part is hidden now, the gain is larger: that part shrinks and stays hidden.
    """
    saved = (ledger.allreduce * (1 - 1 / factor)).astype(np.int64)
    return what_if(Fix("bandwidth", f"{factor:g}"), ledger, saved)


@dataclass(frozen=True)
class MeasuredAllreduce:
    """A run's exposed allreduce, to which a model of the communication is fitted."""

    ranks: int
    gradient_bytes: int
    exposed_ms: Mean


@dataclass(frozen=True)
class CommunicationModel:
    """A model of exposed allreduce over ranks: latency × messages + bytes / bandwidth.

    ``kind`` is ``ring`` or ``tree``, whichever fits better. With runs of only one size, latency and
    bandwidth cannot be separated: the model then uses bandwidth only, and ``latency_ms`` is None.
    """

    kind: str
    latency_ms: float | None
    #: Milliseconds per byte on the bus.
    ms_per_byte: float
    gradient_bytes: int
    #: Covariance of latency and milliseconds per byte; None with too few runs.
    covariance: Floats | None
    freedom: int
    #: The measurement if only one size was measured.
    only: MeasuredAllreduce | None

    def at(self, ranks: int) -> Mean:
        """Predict the exposed milliseconds on this many ranks, with the fit's 95 % interval.

        With one measured size, the interval ranges from pure bandwidth to pure latency.
        """
        if ranks < 2:
            return Mean(0.0, (0.0, 0.0))
        if self.only is not None:
            factor = bus_bytes(ranks, 1) / bus_bytes(self.only.ranks, 1)
            latency = _messages(self.kind, ranks) / _messages(self.kind, self.only.ranks)
            low, high = sorted((factor, latency))
            exposed = self.only.exposed_ms
            ends = exposed.ci95 or (exposed.value, exposed.value)
            return Mean(exposed.value * factor, (ends[0] * low, ends[1] * high))
        row = np.array([_messages(self.kind, ranks), bus_bytes(ranks, self.gradient_bytes)])
        value = float(row @ np.array([self.latency_ms or 0.0, self.ms_per_byte]))
        if self.covariance is None:
            return Mean(value, None)
        half = float(student_quantile(0.975, self.freedom) * np.sqrt(row @ self.covariance @ row))
        return Mean(value, (max(0.0, value - half), value + half))


def fit_communication(runs: Sequence[MeasuredAllreduce]) -> CommunicationModel | None:
    """Fit a model to runs of one job on different numbers of ranks; None without communication."""
    several = [run for run in runs if run.ranks > 1]
    if not several:
        return None
    gradient_bytes = several[-1].gradient_bytes
    if len({run.ranks for run in several}) == 1:
        value = float(np.mean([run.exposed_ms.value for run in several]))
        per_byte = value / bus_bytes(several[0].ranks, gradient_bytes)
        return CommunicationModel("ring", None, per_byte, gradient_bytes, None, 0, several[0])
    fits = [_fitted(kind, several, gradient_bytes) for kind in ("ring", "tree")]
    return min(fits, key=lambda fit: fit[0])[1]


def _fitted(
    kind: str, runs: Sequence[MeasuredAllreduce], gradient_bytes: int
) -> tuple[float, CommunicationModel]:
    rows = np.array(
        [[_messages(kind, r.ranks), bus_bytes(r.ranks, r.gradient_bytes)] for r in runs]
    )
    times = np.array([run.exposed_ms.value for run in runs])
    # A run's interval ignores the differences between launches, so weights are relative instead.
    weights = 1 / np.maximum(times, 1e-9)
    scale = np.linalg.norm(rows * weights[:, None], axis=0)
    solution, residual = optimize.nnls(rows * weights[:, None] / scale, times * weights)
    latency, per_byte = solution / scale
    freedom = len(runs) - 2
    covariance = None
    if freedom > 0:
        design = rows * weights[:, None]
        covariance = np.linalg.pinv(design.T @ design) * residual**2 / freedom
    return float(residual), CommunicationModel(
        kind, float(latency), float(per_byte), gradient_bytes, covariance, freedom, None
    )


def _messages(kind: str, ranks: int) -> float:
    return 2.0 * (ranks - 1) if kind == "ring" else 2.0 * float(np.ceil(np.log2(ranks)))


def expected_imbalance(ranks: int) -> float:
    """Return how much later than the lower median the last of this many equal ranks is ready, in SDs."""
    order = (np.array([ranks, (ranks + 1) // 2]) - _BLOM) / (ranks + 0.25)
    last, reference = normal_quantile(order)
    return float(last - reference)


@dataclass(frozen=True)
class Projection:
    """A job projected to another number of ranks; ``extrapolated`` beyond the measured sizes."""

    ranks: int
    step_ms: Mean
    #: Samples per second relative to the measured run.
    speedup: float
    ci95: tuple[float, float] | None
    extrapolated: bool


def project(
    ranks: int,
    size: int,
    ledger: Ledger,
    model: CommunicationModel,
    measured_sizes: Sequence[int],
) -> Projection:
    """Project a run from ``size`` to ``ranks`` ranks, with the same work per rank.

    The reference rank's work stays the same, imbalance grows like the maximum over the ranks, and
    exposed allreduce follows the model.
    """
    work = mean_with_interval(ledger.total - ledger.allreduce - ledger.imbalance).scaled(1e-6)
    growth = expected_imbalance(ranks) / expected_imbalance(size) if size > 1 else 0.0
    imbalance = ledger.mean_ms("imbalance").scaled(growth)
    allreduce = model.at(ranks)
    value = work.value + imbalance.value + allreduce.value
    step = Mean(value, _sum_of(value, (work, imbalance, allreduce)))
    now = float(ledger.total.mean()) / 1e6

    def speedup(ms: float) -> float:
        return ranks / size * now / ms

    ends = step.ci95
    ci95 = (speedup(ends[1]), speedup(ends[0])) if ends is not None and ends[0] > 0 else None
    inside = min(measured_sizes) <= ranks <= max(measured_sizes)
    return Projection(ranks, step, speedup(value), ci95, extrapolated=not inside)


def _sum_of(value: float, parts: Sequence[Mean]) -> tuple[float, float] | None:
    if any(part.ci95 is None for part in parts):
        return None
    ends = [part.ci95 for part in parts if part.ci95 is not None]
    below = np.sqrt(sum((p.value - e[0]) ** 2 for p, e in zip(parts, ends, strict=True)))
    above = np.sqrt(sum((e[1] - p.value) ** 2 for p, e in zip(parts, ends, strict=True)))
    return value - float(below), value + float(above)


# -- Inside collectives: what ranks wait for where they share a model ------------------------------


@dataclass(frozen=True)
class InsideCollective:
    """The time of ranks in one kind of collective of the groups with one name.

    Recorders time the training thread, and traces NCCL's kernels.
    """

    kind: str
    group: str
    #: How many ranks recorded it, their mean number of waits per step, and the mean of their times.
    ranks: int
    waits: float
    ms: float
    #: The ranks with the least and the most time per step. A rank with little comes late: the others
    #: wait for it.
    least_ms: float
    least_rank: int
    most_ms: float
    most_rank: int
    #: The rank that arrives last most often, with its share of collectives; None unless traces of all
    #: ranks of a group number them.
    last_rank: int | None
    last_share: float | None


def inside_collectives(run: Run) -> tuple[InsideCollective, ...]:
    """Return the time inside each kind of collective, the longest first; empty where it is unknown."""
    of_ranks: dict[tuple[str, str], dict[int, _OnRank]] = {}
    for rank, log in sorted(run.last_logs.items()):
        for kind, group, on_rank in _per_step(log.facts.get("collectives")):
            of_ranks.setdefault((kind, group), {})[rank] = on_rank
    collectives = []
    for (kind, group), ranks in of_ranks.items():
        least, most = (which(ranks, key=lambda rank: ranks[rank].ms) for which in (min, max))
        shares = {rank: entry.last for rank, entry in ranks.items() if entry.last is not None}
        last = max(shares, key=lambda rank: shares[rank], default=None)
        collectives.append(
            InsideCollective(
                kind=kind,
                group=group,
                ranks=len(ranks),
                waits=sum(entry.waits for entry in ranks.values()) / len(ranks),
                ms=sum(entry.ms for entry in ranks.values()) / len(ranks),
                least_ms=ranks[least].ms,
                least_rank=least,
                most_ms=ranks[most].ms,
                most_rank=most,
                last_rank=last,
                last_share=None if last is None else shares[last],
            )
        )
    return tuple(sorted(collectives, key=lambda collective: -collective.ms))


@dataclass(frozen=True)
class _OnRank:
    """One rank's waits and milliseconds per step, and the share of collectives in which it came last."""

    waits: float
    ms: float
    last: float | None


def _per_step(fact: Any) -> Iterator[tuple[str, str, _OnRank]]:
    """Yield kind, group and figures of a rank; nothing of an invalid fact."""
    steps = fact.get("steps") if isinstance(fact, Mapping) else None
    entries = fact.get("waits") if isinstance(fact, Mapping) else None
    if type(steps) is not int or steps <= 0 or not isinstance(entries, list):
        return
    for entry in entries:
        if isinstance(entry, Mapping):
            waits, waited_us, matched, last = (
                value if type(value := entry.get(name)) is int and value >= 0 else None
                for name in ("waits", "waited_us", "matched", "last")
            )
            if waits is not None and waited_us is not None:
                share = last / matched if matched and last is not None else None
                on_rank = _OnRank(waits / steps, waited_us / steps / 1e3, share)
                yield str(entry.get("kind")), str(entry.get("group")), on_rank
