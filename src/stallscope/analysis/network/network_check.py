"""Compare a run's exposed allreduce with what its network gives, as ``stallscope netcheck`` measured it.

A message of n bytes takes negotiation + latency + n / bandwidth. One message of a few bytes gives the
first two together, several of them at once, which cannot be fused, tell them apart, and one message
with all bytes of the gradients gives the third. What the gradients take beyond that, reduced as the run
does it, is the cost of fusion: of copies, and of more messages than one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.lazy_scipy import scipy_stats
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import joined
from stallscope.run import NetworkCheck, PairRounds, Rounds, Run

from ..settings.setup import Setup
from .communication import bus_bytes

# Settings that change what an allreduce takes.
_SETTINGS = (
    *("HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_HIERARCHICAL_ALLREDUCE"),
    *("HOROVOD_GLOO_IFACE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE"),
    *("HOROVOD_CPU_OPERATIONS", "HOROVOD_CONTROLLER", "NCCL_ALGO", "NCCL_PROTO"),
)
_REDUCERS = {"ddp": "torch.distributed"}
# A pair of hosts is slow if its rate is less than this share of the median pair's.
_SLOW_SHARE = 0.5
_FEWEST_PAIRS = 3


@dataclass(frozen=True)
class Parts:
    """What the milliseconds of a step's gradients consist of; None where they cannot be told apart."""

    bandwidth: Mean
    latency: Mean
    #: None where nothing is negotiated.
    negotiation: Mean | None
    fusion: Mean


@dataclass(frozen=True)
class MessageTime:
    """One message of so many bytes, reduced by all ranks."""

    bytes: int
    ms: Mean
    #: GB/s over every link of a ring.
    bus_bandwidth: float


@dataclass(frozen=True)
class PairRate:
    """The rate at which two hosts send to each other at once, each way."""

    hosts: tuple[str, str]
    mbit_s: Mean
    #: Milliseconds of an exchange of a few bytes; None if not measured.
    small_ms: Mean | None
    is_slow: bool


@dataclass(frozen=True)
class NetworkUse:
    """A run next to a measurement of its network, when nothing trained."""

    check: NetworkCheck
    #: Why the figures are those of another network; empty if they are of this run's.
    differs: tuple[str, ...]
    #: All gradients of a step, reduced as the run does it; None if they were not measured.
    gradients_ms: Mean | None
    parts: Parts | None
    #: The run's exposed allreduce; None if it is unknown.
    exposed_ms: Mean | None
    sweep: tuple[MessageTime, ...]
    #: The slowest first.
    pairs: tuple[PairRate, ...]

    @property
    def excess_ms(self) -> Mean | None:
        """Return how much longer exposed allreduce is than the network takes for all gradients.

        Below zero backward hides a part; above it, the network alone does not explain what is exposed.
        None for another network, or where one of both is unknown.
        """
        if self.differs or self.gradients_ms is None or self.exposed_ms is None:
            return None
        return self.exposed_ms.minus(self.gradients_ms)


def network_use(run: Run, exposed_ms: Mean | None) -> NetworkUse | None:
    """Compare a run with the newest measurement of its network, otherwise of any; None without one.

    Args:
        run: the run.
        exposed_ms: its exposed allreduce in a steady step.
    """
    if not run.network_checks:
        return None
    newest = sorted(run.network_checks, key=lambda check: -check.began)
    found = [(check, tuple(_differences(run, check))) for check in newest]
    check, differs = next((one for one in found if not one[1]), found[0])
    gradients = None if check.as_run is None else median_ms(check.as_run.us)
    return NetworkUse(
        check=check,
        differs=differs,
        gradients_ms=gradients,
        parts=_parts(check),
        exposed_ms=exposed_ms,
        sweep=tuple(_message(one, check.size) for one in check.sweep),
        pairs=_pairs(check),
    )


def median_ms(us: Sequence[float]) -> Mean:
    """Return the median of some microseconds, in milliseconds, with its exact interval for any law.

    The interval is that of the binomial test (``scipy.stats.quantile_test``): None below six values.
    """
    values = np.asarray(us, np.float64) / 1e3
    interval = scipy_stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    ends = float(interval.low), float(interval.high)
    return Mean(float(np.median(values)), ends if all(map(math.isfinite, ends)) else None)


def _differences(run: Run, check: NetworkCheck) -> Iterator[str]:
    if check.size != run.size:
        yield f"measured on {check.size:,} rank(s), and the run has {run.size:,}"
    elif not run.missing_ranks:
        own = Counter(log.host for log in run.last_logs.values())
        if own != Counter(check.hosts):
            yield f"measured on {_places(Counter(check.hosts))}, and the run was on {_places(own)}"
    setup = Setup.of(run)
    reducer = _REDUCERS.get(setup.library or "", setup.library)
    if reducer is not None and reducer != check.reduced_by:
        yield f"measured with {check.reduced_by}, and the run reduces with {reducer}"
    then, now = check.reduces_with, setup.reduces_with
    if then and now and then != now:
        yield f"reduced by {joined(then)}, and in the run by {joined(now)}"
    for name in _SETTINGS:
        was, is_now = (one.get(name, "not set") for one in (check.settings, setup.settings))
        if was != is_now:
            yield f"{name} was {was}, and in the run it was {is_now}"


def _places(hosts: Counter[str]) -> str:
    return ", ".join(f"{host} ({ranks})" for host, ranks in sorted(hosts.items()))


def _parts(check: NetworkCheck) -> Parts | None:
    one = next((rounds for rounds in check.tiny if rounds.messages == 1), None)
    several = next((rounds for rounds in check.tiny if rounds.messages > 1), None)
    if check.as_run is None or check.together is None or one is None or several is None:
        return None
    together, small = median_ms(check.together.us), median_ms(one.us)
    more = median_ms(several.us).minus(small).scaled(1 / (several.messages - 1))
    negotiated = check.reduced_by == "horovod"
    return Parts(
        bandwidth=_not_negative(together.minus(small)),
        latency=_not_negative(more) if negotiated else small,
        negotiation=_not_negative(small.minus(more)) if negotiated else None,
        fusion=_not_negative(median_ms(check.as_run.us).minus(together)),
    )


def _not_negative(part: Mean) -> Mean:
    """Return the part without what only noise makes negative."""
    ends = None if part.ci95 is None else (max(0.0, part.ci95[0]), max(0.0, part.ci95[1]))
    return Mean(max(0.0, part.value), ends)


def _message(rounds: Rounds, ranks: int) -> MessageTime:
    ms = median_ms(rounds.us)
    return MessageTime(rounds.bytes, ms, bus_bytes(ranks, rounds.bytes) / max(ms.value, 1e-6) / 1e6)


def _pairs(check: NetworkCheck) -> tuple[PairRate, ...]:
    measured = [pair for pair in check.pairs if pair.us and min(pair.us) > 0]
    rates = [_rate(pair) for pair in measured]
    usual = float(np.median([rate.value for rate in rates])) if rates else 0.0
    told_apart = len(rates) >= _FEWEST_PAIRS
    found = [
        PairRate(
            pair.hosts,
            rate,
            median_ms(pair.small_us) if pair.small_us else None,
            told_apart and rate.value < _SLOW_SHARE * usual,
        )
        for pair, rate in zip(measured, rates, strict=True)
    ]
    return tuple(sorted(found, key=lambda pair: pair.mbit_s.value))


def _rate(pair: PairRounds) -> Mean:
    """Return Mbit/s each way, without what starting an exchange takes."""
    ms, small = median_ms(pair.us), median_ms(pair.small_us or (0.0,)).value
    start = small if small < ms.value else 0.0
    mbit = pair.bytes * 8 / 1e3
    ends = None
    if ms.ci95 is not None and ms.ci95[0] > start:
        ends = (mbit / (ms.ci95[1] - start), mbit / (ms.ci95[0] - start))
    return Mean(mbit / (ms.value - start), ends)
