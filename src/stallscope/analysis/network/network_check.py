"""Compare a run's exposed allreduce with its network's speed, as ``stallscope netcheck`` measured it.

A message of n bytes takes negotiation + latency + n / bandwidth. One message of a few bytes gives the
sum of the first two. Several such messages at once, which are not fused, separate the two. One message
with all bytes of the gradients gives the third. If the gradients take longer when they are reduced as in
the run, the rest is the cost of fusion: of copies, and of several messages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.distributions import scipy_stats
from stallscope.arrays.stats import Mean, autocorrelation_time
from stallscope.collector.netcheck.sizes import bus_bytes, mbit_s, parts_of
from stallscope.formatting.lists import counted, joined, listed
from stallscope.formatting.numbers import amount
from stallscope.run import NetworkCheck, PairRounds, Rounds, Run

from ..setup import Setup

# Settings that change how long an allreduce takes.
_SETTINGS = (
    *("HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_HIERARCHICAL_ALLREDUCE"),
    *("HOROVOD_CACHE_CAPACITY", "HOROVOD_TORUS_ALLREDUCE", "HOROVOD_NUM_NCCL_STREAMS"),
    *("HOROVOD_GLOO_IFACE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE"),
    *("HOROVOD_CPU_OPERATIONS", "HOROVOD_CONTROLLER", "NCCL_ALGO", "NCCL_PROTO"),
)
_REDUCERS = {"ddp": "torch.distributed"}
# A pair of hosts is slow if its rate is less than this share of the faster pairs' (the upper quartile).
# Not of the median: all pairs of a slow host are slow, and these may be most of them.
_SLOW_SHARE, _FASTER = 0.5, 0.75
# Gradients of two runs are the same if their bytes differ by no more than this share.
_SAME_BYTES = 0.05
_FEWEST_PAIRS = 3


@dataclass(frozen=True)
class Parts:
    """The parts of the milliseconds that a step's gradients take; they add up."""

    bandwidth: Mean
    latency: Mean
    #: None where nothing is negotiated.
    negotiation: Mean | None
    fusion: Mean


@dataclass(frozen=True)
class MessageTime:
    """One message of this many bytes, reduced by all ranks."""

    bytes: int
    ms: Mean
    #: GB/s over every link of a ring.
    bus_bandwidth: float


@dataclass(frozen=True)
class PairRate:
    """The rate at which two hosts send to each other at the same time, each way."""

    hosts: tuple[str, str]
    mbit_s: Mean
    #: Milliseconds of an exchange of a few bytes; None if not measured.
    small_ms: Mean | None
    is_slow: bool


@dataclass(frozen=True)
class NetworkUse:
    """A run, and a measurement of its network without training."""

    check: NetworkCheck
    #: Why the figures are those of another network; empty if they are this network's.
    differs: tuple[str, ...]
    #: The time of all gradients of a step, reduced as in the run; None if not measured.
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

        If it is negative, backward hides a part; if positive, the network alone does not explain the
        exposed time. None for another network, or if either time is unknown.
        """
        if self.differs or self.gradients_ms is None or self.exposed_ms is None:
            return None
        return self.exposed_ms.minus(self.gradients_ms)

    @property
    def excess_share(self) -> float:
        """Return the least share of exposed allreduce that the network alone does not explain."""
        excess, exposed = self.excess_ms, self.exposed_ms
        if excess is None or excess.ci95 is None or exposed is None or exposed.value <= 0:
            return 0.0
        return max(0.0, excess.ci95[0]) / exposed.value


def network_use(run: Run, exposed_ms: Mean | None) -> NetworkUse | None:
    """Compare a run with the newest measurement of its network, or else of any; None without one.

    Args:
        run: the run.
        exposed_ms: its exposed allreduce in a steady step.
    """
    if not run.network_checks:
        return None
    newest = sorted(run.network_checks, key=lambda check: -check.began)
    setup = Setup.of(run)
    compared = [(check, tuple(_differences(run, setup, check))) for check in newest]
    check, differs = next((pair for pair in compared if not pair[1]), compared[0])
    gradients = None if check.as_run is None else median_ms(check.as_run.us)
    return NetworkUse(
        check=check,
        differs=differs,
        gradients_ms=gradients,
        parts=_parts(check, gradients),
        exposed_ms=exposed_ms,
        sweep=tuple(_message(rounds, check.size) for rounds in check.sweep),
        pairs=_pairs(check),
    )


def median_ms(us: Sequence[float]) -> Mean:
    """Return the median of consecutive microseconds, in milliseconds, with an interval.

    The interval is that of the binomial test on the independent values, for any distribution; None with
    fewer than six of them.
    """
    values = np.asarray(us, np.float64) / 1e3
    apart = math.ceil(autocorrelation_time(values))
    independent = np.sort(values[::apart])
    # This many values or fewer are below the median in less than 2.5 % of cases.
    first = int(scipy_stats.binom.ppf(0.025, len(independent), 0.5)) - 1
    if first < 0:
        return Mean(float(np.median(values)), None)
    ends = float(independent[first]), float(independent[-1 - first])
    return Mean(float(np.median(values)), ends)


def _differences(run: Run, setup: Setup, check: NetworkCheck) -> Iterator[str]:
    if check.size != run.size:
        yield f"measured on {counted(check.size, 'rank')}, and the run has {run.size:,}"
    elif not run.missing_ranks:
        hosts = Counter(log.host for log in run.last_logs.values())
        if hosts != Counter(check.hosts):
            yield f"measured on {_places(Counter(check.hosts))}, and the run was on {_places(hosts)}"
    reducer = _REDUCERS.get(setup.library or "", setup.library)
    if reducer is not None and reducer != check.reduced_by:
        yield f"measured with {check.reduced_by}, and the run reduces with {reducer}"
    then, now = check.reduces_with, _libraries(setup)
    if then and now and then != now:
        yield f"reduced by {joined(then)}, and in the run by {joined(now)}"
    yield from _of_other_gradients(run, setup, check)
    for name in _SETTINGS:
        was, is_now = (
            settings.get(name, "not set") for settings in (check.settings, setup.settings)
        )
        if was != is_now:
            yield f"{name} was {was}, and in the run it was {is_now}"


def _libraries(setup: Setup) -> tuple[str, ...]:
    """Return the libraries that reduce the run's gradients; nothing if they are unknown.

    On CPUs, Horovod does not use NCCL even if it was built with it. PyTorch names libraries by device,
    as in ``cpu:gloo,cuda:nccl``, or ``undefined`` if it chooses one itself.
    """
    libraries = []
    for name in ",".join(setup.reduces_with or ()).split(","):
        device, _, library = name.rpartition(":")
        if library == "undefined":
            return ()
        other_device = bool(device) and (device == "cuda") is not bool(setup.gpu)
        if library and not other_device and (setup.gpu or library != "nccl"):
            libraries.append(library)
    return tuple(libraries)


def _of_other_gradients(run: Run, setup: Setup, check: NetworkCheck) -> Iterator[str]:
    """Yield a difference if another run was measured, with more or fewer bytes."""
    total = setup.gradient_bytes
    if check.run_id in (None, run.id) or check.as_run is None or not total:
        return
    expected = total / 2 if "16" in (setup.compression or "") else total
    if abs(check.as_run.bytes - expected) > _SAME_BYTES * expected:
        in_check, in_run = (f"{size / 1e6:,.3g} MB" for size in (check.as_run.bytes, expected))
        measured = listed("run", [check.run_id])
        yield f"measured for {measured}, with {in_check} of gradients, and this run has {in_run}"


def _places(hosts: Counter[str]) -> str:
    return ", ".join(f"{host} ({ranks})" for host, ranks in sorted(hosts.items()))


def _parts(check: NetworkCheck, as_run: Mean | None) -> Parts | None:
    single = next((rounds for rounds in check.tiny if rounds.messages == 1), None)
    several = next((rounds for rounds in check.tiny if rounds.messages > 1), None)
    if as_run is None or check.together is None or single is None or several is None:
        return None
    together, small, more = (median_ms(rounds.us) for rounds in (check.together, single, several))
    count, negotiates = several.messages, check.reduced_by == "horovod"
    values = parts_of(
        as_run.value, together.value, small.value, more.value, count, negotiates=negotiates
    )
    of_one = 1 / (count - 1)
    latency = more.minus(small).scaled(of_one) if negotiates else small
    negotiation = small.scaled(1 + of_one).minus(more.scaled(of_one))
    return Parts(
        bandwidth=_around(values.bandwidth, together.minus(small)),
        latency=_around(values.latency, latency),
        negotiation=None
        if values.negotiation is None
        else _around(values.negotiation, negotiation),
        fusion=_around(values.fusion, as_run.minus(together)),
    )


def _around(value: float, mean: Mean) -> Mean:
    """Return a part with its interval; noise must not make it begin below zero."""
    if mean.ci95 is None:
        return Mean(value, None)
    return Mean(value, (max(0.0, min(mean.ci95[0], value)), max(mean.ci95[1], value)))


def _message(rounds: Rounds, ranks: int) -> MessageTime:
    ms = median_ms(rounds.us)
    return MessageTime(rounds.bytes, ms, bus_bytes(ranks, rounds.bytes) / max(ms.value, 1e-6) / 1e6)


def _pairs(check: NetworkCheck) -> tuple[PairRate, ...]:
    measured = [pair for pair in check.pairs if pair.us and min(pair.us) > 0]
    small = [median_ms(pair.small_us) if pair.small_us else None for pair in measured]
    rates = [_rate(pair) for pair in measured]
    faster = float(np.quantile([rate.value for rate in rates], _FASTER)) if rates else 0.0
    comparable = len(rates) >= _FEWEST_PAIRS
    pairs = [
        PairRate(pair.hosts, rate, small_ms, comparable and rate.value < _SLOW_SHARE * faster)
        for pair, rate, small_ms in zip(measured, rates, small, strict=True)
    ]
    return tuple(sorted(pairs, key=lambda pair: pair.mbit_s.value))


def _rate(pair: PairRounds) -> Mean:
    """Return Mbit/s each way, without the time to start an exchange."""
    ms = median_ms(pair.us)
    times = (ms.value, *(ms.ci95 or ())[::-1])
    rates = [mbit_s(pair.bytes, 1e3 * value, pair.small_us) for value in times]
    return Mean(rates[0], None if ms.ci95 is None else (rates[1], rates[2]))


# -- Describe how fast the network reduces a run's gradients, compared with exposed allreduce -----


def network_sentence(use: NetworkUse) -> str:
    """Describe in one or two sentences the network's speed, and the exposed time that it explains."""
    if use.differs:
        return (
            "stallscope netcheck measured another network, or with other settings: "
            f"{'; '.join(use.differs)}. Launch it like the training."
        )
    if use.gradients_ms is None:
        return f"The network was measured {measured_at(use)}, without the run's gradients."
    whole = amount(use.gradients_ms.value, "ms", use.gradients_ms.ci95)
    parts = "" if use.parts is None else f" ({_largest_first(use.parts)})"
    return f"These gradients take {whole} on this network{parts}; {_exposed(use)}."


def measured_at(use: NetworkUse) -> str:
    """Return the time of the measurement, in words."""
    return f"{use.check.measured_at:%Y-%m-%d %H:%M} UTC"


def _exposed(use: NetworkUse) -> str:
    if use.exposed_ms is None:
        return "how much the run exposes is not known"
    exposed = f"{amount(use.exposed_ms.value, 'ms', use.exposed_ms.ci95)} are exposed"
    more = use.excess_ms
    if more is None or more.ci95 is None:
        return exposed
    if more.ci95[0] > 0:
        return (
            f"{exposed}, {amount(more.value, 'ms', more.ci95)} more than the network needs while "
            "nothing trains"
        )
    if more.ci95[1] < 0:
        return f"{exposed}, as backward hides the rest"
    return exposed


def _largest_first(parts: Parts) -> str:
    known = {name: mean.value for name, mean in vars(parts).items() if mean is not None}
    named = sorted(known, key=lambda name: -known[name])
    return ", ".join(f"{amount(known[name], 'ms')} {name}" for name in named)
