"""Explain stragglers and verdicts by the machines' counters, in sentences and advice."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import capitalised, joined, listed, ranks_in_words
from stallscope.formatting.numbers import amount, significant
from stallscope.run import Run
from stallscope.words import STAGES, Cause, Stage

from .gains.what_if import Advice, Bottleneck, Reason
from .ledger.ledger import Ledger
from .steps.links import Link, SlowLinks
from .stragglers.lateness import Straggler
from .symptoms import CPU_TIME, SYMPTOMS, Counted, Symptom

_MOST_REASONS = 3
# Fewer seconds are not enough.
_FEWEST_VALUES = 8
# Differences between ranks are tested against half of the least that matters, far from zero. So the
# interval need not have its nominal coverage.
_FEWEST_INDEPENDENT = 4
# More CPU time explains a slow rank if it is at least this share of the rank's excess.
_SHARE_OF_EXCESS = 0.5
# A step is late if it is longer than usual by at least this share of the excess of late steps.
_LATE = 0.5
# This many peers show how long a step took elsewhere.
_SOME_PEERS = 16
# A cause that slows down all ranks shows on at least this share of them.
_NEARLY_ALL = 0.9
# On another host, the job's own limits would be the same.
_OF_LIMITS = frozenset({"throttled"})
# Reasons that make a stage slow more directly than others do.
_OF_CAUSE: dict[Cause, frozenset[str]] = {
    "input": frozenset({"disk", "major_faults", "memory_pressure"}),
}
# A reason, with the ratio of its difference to the least difference that matters.
_Weighed = tuple[float, Reason]

# A sentence for each code.
_SENTENCES = {
    "throttled": "{who}: the cgroup was throttled in {value} of its periods{than}.",
    "gpu_power_cap": "{who}: the power cap held the GPU's clocks down {value} of the time{than}.",
    "gpu_heat": "{who}: heat held the GPU's clocks down {value} of the time{than}.",
    "gpu_clock": "{who}: the GPU's clock is {value} below the fastest rank's{than}.",
    "other_processes": "{who}: other processes keep {value} busy{than}.",
    "stolen_cores": "{who}: the hypervisor takes {value}{than}.",
    "major_faults": "{who}: pages are read from disk again, {value}{than}: memory is short.",
    "memory_pressure": "{who}: processes waited for memory {value} of the time{than}.",
    "disk": "{who}: processes waited for the disk {value} of the time{than}.",
    "waits_for_cores": "{who}: {value} were ready to run and had no core{than}.",
    "more_cpu_time": "{who}: a step takes {value} of CPU time{than}: more work, or slower cores.",
}
_UNITS = {"cores": "core", "threads": "thread"}


def with_slow_links(verdict: Bottleneck, slow: SlowLinks | None) -> Bottleneck:
    """Return a verdict on exposed allreduce with the links that cause it, if any are slow."""
    if verdict.kind != "allreduce" or slow is None:
        return verdict
    return replace(
        verdict,
        cause="network",
        fault=True,
        evidence=f"{verdict.evidence} {slow_links_in_words(slow)}",
        hosts=(slow.host,) if slow.host else (),
        links=slow.links,
        advice=(advice_on_links(slow), *verdict.advice),
    )


def slow_links_in_words(slow: SlowLinks) -> str:
    """Return the sentence on slow links, with the evidence."""
    trip = median(link.round_trip_ms[1] for link in slow.links)
    rate, others = significant(slow.mbit_s), significant(slow.others_mbit_s)
    return (
        f"{_what_is_slow(slow)}: {rate} Mbit/s while it is busy, the others {others} Mbit/s; a round "
        f"trip takes {amount(trip, 'ms')}, theirs {amount(slow.others_trip_ms, 'ms')}."
    )


def _what_is_slow(slow: SlowLinks) -> str:
    if slow.host:
        return f"Host {slow.host} has a slow link"
    pairs = list(dict.fromkeys(f"{link.sender} → {link.receiver}" for link in slow.links))
    return f"{listed('Link', pairs)} {'is' if len(pairs) == 1 else 'are'} slow"


def _between(links: Sequence[Link]) -> str:
    """Name the hosts at the ends of links."""
    hosts = dict.fromkeys(host for link in links for host in (link.sender, link.receiver))
    return f"between {joined(list(hosts))}"


def may_have_reasons(verdict: Bottleneck) -> bool:
    """Whether counters may explain a verdict: on slow ranks, or on a stage that is slow on all."""
    return bool(verdict.ranks) or (verdict.fault and verdict.cause in STAGES)


def with_reasons(
    verdict: Bottleneck, counted: Counted, stragglers: Sequence[Straggler], steady: Ledger
) -> Bottleneck:
    """Return a verdict with its reasons, and with advice on these first.

    Args:
        verdict: the verdict; its ranks are stragglers, if it names any.
        counted: the machines' counters.
        stragglers: the run's stragglers.
        steady: the steady steps.
    """
    reasons = tuple(
        _of_stragglers(counted, stragglers, steady) if verdict.ranks else _of_all(counted, verdict)
    )
    todo = [advice_on(reason.code, whom(reason.ranks, reason.hosts)) for reason in reasons]
    first = dict.fromkeys(advice for advice in todo if advice is not None)
    others = verdict.advice
    if reasons and all(reason.code in _OF_LIMITS for reason in reasons):
        others = tuple(advice for advice in others if not advice.replaces_hosts)
    return replace(verdict, why=(*reasons, *verdict.why), advice=(*first, *others))


def _of_stragglers(
    counted: Counted, stragglers: Sequence[Straggler], steady: Ledger
) -> Iterator[Reason]:
    slow = {rank for straggler in stragglers for rank in straggler.ranks}
    for straggler in stragglers:
        ranks = [rank for rank in straggler.ranks if rank in counted.ranks]
        peers = [rank for rank in counted.ranks if rank not in slow]
        if not ranks or not peers or straggler.work is not None:
            continue
        reasons: list[_Weighed] = []
        if straggler.pattern == "bursts":
            late = _late_pieces(counted, straggler, steady)
            for symptom in SYMPTOMS:
                reasons += _while_late(counted, symptom, ranks, peers, late)
        if not reasons:
            for symptom in SYMPTOMS:
                reasons += _compared(counted, symptom, ranks, peers)
        reasons = _without_consequences(reasons, straggler.stage)
        yield from (reason for _, reason in reasons[:_MOST_REASONS])
        if not reasons:
            least = _SHARE_OF_EXCESS * straggler.excess_ms.value
            yield from (reason for _, reason in _compared(counted, CPU_TIME, ranks, peers, least))


def _of_all(counted: Counted, verdict: Bottleneck) -> Iterator[Reason]:
    """Yield the symptoms that are too large on all ranks."""
    reasons = []
    for symptom in SYMPTOMS:
        values = symptom.of(counted)
        if values is None or symptom.most is None:
            continue
        least, mean = _mean(_middle(values, _NEARLY_ALL)), _mean(_middle(values))
        if mean.ci95 is not None and least.ci95 is not None and least.ci95[0] > symptom.most:
            hosts = tuple(dict.fromkeys(counted.hosts)) if symptom.of_host else ()
            reason = _reason(symptom, (), hosts, mean, None, mean)
            reasons.append((mean.value / symptom.most, reason))
    reasons = _without_consequences(reasons, verdict.cause)
    yield from (reason for _, reason in reasons[:_MOST_REASONS])


def _without_consequences(reasons: Sequence[_Weighed], cause: Cause | None) -> list[_Weighed]:
    """Sort reasons, those of the cause first and then the largest; leave out consequences of others.

    A throttled process waits for cores. Other processes only disturb one that waits for cores. A power
    cap or heat lowers the clock.
    """
    codes = {reason.code for _, reason in reasons}
    dropped = {"waits_for_cores", "other_processes"} if "throttled" in codes else set()
    if codes & {"gpu_power_cap", "gpu_heat"}:
        dropped.add("gpu_clock")
    if "waits_for_cores" not in codes:
        dropped.add("other_processes")
    kept = [(weight, reason) for weight, reason in reasons if reason.code not in dropped]
    of_cause = frozenset() if cause is None else _OF_CAUSE.get(cause, frozenset())
    return sorted(kept, key=lambda pair: (pair[1].code not in of_cause, -pair[0]))


def _compared(
    counted: Counted,
    symptom: Symptom,
    ranks: Sequence[int],
    peers: Sequence[int],
    least: float | None = None,
) -> Iterator[_Weighed]:
    """Yield a reason, with its weight, if a symptom is larger on some ranks than on their peers."""
    pair = _own_and_peers(counted, symptom, ranks, peers)
    if pair is None:
        return
    of_own, of_peers = pair
    difference = _mean(of_own - of_peers)
    least = symptom.least if least is None else least
    if not _matters(difference, least):
        return
    value, usual = _mean(of_own), float(np.nanmean(of_peers))
    reason = _reason(symptom, *_ranks_or_hosts(counted, symptom, ranks), value, usual, difference)
    yield difference.value / max(least, 1e-9), reason


def _while_late(
    counted: Counted, symptom: Symptom, ranks: Sequence[int], peers: Sequence[int], late: Bools
) -> Iterator[_Weighed]:
    """Yield a reason, with its weight, if a symptom is larger on some ranks while they are late.

    Compare the differences from the peers: a symptom that also changes on these is no reason.
    """
    pair = _own_and_peers(counted, symptom, ranks, peers)
    if pair is None:
        return
    of_own, excess = pair[0], pair[0] - pair[1]
    then, otherwise = _mean(excess[late]), _mean(excess[~late])
    if then.ci95 is None or otherwise.ci95 is None:
        return
    # The intervals must not overlap.
    ends = (then.ci95[0] - otherwise.ci95[1], then.ci95[1] - otherwise.ci95[0])
    difference = Mean(then.value - otherwise.value, ends)
    if not _matters(difference, symptom.least):
        return
    value, usual = _mean(of_own[late]), float(np.nanmean(of_own[~late]))
    about = _ranks_or_hosts(counted, symptom, ranks)
    reason = _reason(symptom, *about, value, usual, difference, while_late=True)
    yield difference.value / symptom.least, reason


def _matters(difference: Mean, least: float) -> bool:
    """Whether a difference is large enough, and its interval far from zero."""
    if difference.ci95 is None:
        return False
    return difference.value >= least and difference.ci95[0] > least / 2


def _late_pieces(counted: Counted, straggler: Straggler, steady: Ledger) -> Bools:
    """Mark the pieces that contain a part of a step in which one of the straggler's ranks is late."""
    positions = [steady.ranks.index(rank) for rank in straggler.ranks]
    others = [at for at in range(len(steady.ranks)) if at not in positions]
    some = others[:: max(1, len(others) // _SOME_PEERS)]
    peers = np.median([_stage_of(steady, straggler.stage, at) for at in some], axis=0)
    pieces = np.zeros(counted.pieces, bool)
    for at in positions:
        # A delay that all ranks share in a step is not this rank's lateness.
        excess = _stage_of(steady, straggler.stage, at) - peers
        late = excess - np.median(excess) > _LATE * straggler.excess_ms.value * 1e6
        for first, last in zip(counted.began[late], counted.ended[late], strict=True):
            pieces[first : last + 1] = True
    return pieces


def _stage_of(steady: Ledger, stage: Stage, at: int) -> Ints:
    """Return a stage of the rank at a position, per step."""
    return steady.of(stage, np.full(len(steady), at))


def _own_and_peers(
    counted: Counted, symptom: Symptom, ranks: Sequence[int], peers: Sequence[int]
) -> tuple[Floats, Floats] | None:
    """Return a symptom on some ranks and on their peers, NaN where either is unknown.

    None if nothing was counted. None also if it was counted on hosts where other ranks are not slow:
    then it explains nothing.
    """
    values = symptom.of(counted)
    if values is None:
        return None
    if symptom.of_host:
        hosts = _hosts(counted, ranks)
        peers = [rank for rank in peers if counted.hosts[counted.ranks.index(rank)] not in hosts]
        if not peers or any(set(counted.on(host)) - set(ranks) for host in hosts):
            return None
    of_own, of_peers = (
        _middle(values[[counted.ranks.index(rank) for rank in some]]) for some in (ranks, peers)
    )
    unknown = np.isnan(of_own) | np.isnan(of_peers)
    if unknown.all():
        return None
    return np.where(unknown, np.nan, of_own), np.where(unknown, np.nan, of_peers)


def _ranks_or_hosts(
    counted: Counted, symptom: Symptom, ranks: Sequence[int]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the ranks that a symptom is about, or their hosts."""
    return ((), _hosts(counted, ranks)) if symptom.of_host else (tuple(ranks), ())


def _hosts(counted: Counted, ranks: Sequence[int]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(counted.hosts[counted.ranks.index(rank)] for rank in ranks))


def _middle(values: Floats, share: float = 0.5) -> Floats:
    """Return the value that this share of ranks exceeds, per piece of time; NaN without values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanquantile(values, 1.0 - share, axis=0))


def _mean(values: Floats) -> Mean:
    """Return the mean over time, with an interval unless there are too few values."""
    known = values[~np.isnan(values)]
    mean = mean_with_interval(known, _FEWEST_INDEPENDENT)
    return mean if len(known) >= _FEWEST_VALUES else Mean(mean.value, None)


def _reason(
    symptom: Symptom,
    ranks: tuple[int, ...],
    hosts: tuple[str, ...],
    value: Mean,
    usual: float | None,
    difference: Mean,
    *,
    while_late: bool = False,
) -> Reason:
    assert difference.ci95 is not None
    text = sentence(symptom.code, whom(ranks, hosts), value.value, usual, symptom.unit, while_late)
    return Reason(
        symptom.code,
        text,
        ranks,
        hosts,
        symptom.quantity,
        symptom.unit,
        symptom.series,
        value.value,
        usual,
        difference.ci95,
        while_late,
    )


def with_hidden_loader(verdict: Bottleneck, run: Run) -> Bottleneck:
    """Return a verdict on slow input with why training does not show how batches are made.

    Petastorm's queue, and a loader that was measured alone, show it in other ways.
    """
    if run.input_times or run.fact("petastorm"):
        return verdict
    for log in run.logs:
        fact = log.facts.get("loader")
        reason = fact.get("reason") if isinstance(fact, dict) else None
        if not isinstance(reason, str) or (verdict.ranks and log.rank not in verdict.ranks):
            continue
        text = (
            f"{capitalised(ranks_in_words([log.rank]))}: training does not show how batches are made: "
            f"{reason}."
        )
        hidden = Reason("loader_hidden", text, (log.rank,), (), "", "", "", 0.0, None, None)
        measure = Advice("Measure the loader and its stages alone", "print(measure_input(data))")
        return replace(verdict, why=(hidden, *verdict.why), advice=(*verdict.advice, measure))
    return verdict


# -- Write sentences and advice on the reasons for slow ranks -------------------------------------


def sentence(
    code: str, who: str, value: float, usual: float | None, unit: str, while_late: bool
) -> str:
    """Describe a count on slow ranks, and the same on their peers or at other times."""
    than = ""
    if usual is not None:
        otherwise = "otherwise" if while_late else "peers"
        than = f"{' while late' * while_late} ({otherwise}: {_with_unit(usual, unit)})"
    return _SENTENCES[code].format(who=capitalised(who), value=_with_unit(value, unit), than=than)


def advice_on(code: str, who: str) -> Advice | None:
    """Return advice on a reason; None if the other advice on the verdict suffices."""
    return {
        "throttled": Advice(
            f"Raise the CPU limit of {who}",
            detail=" (Kubernetes: resources.limits.cpu; Docker: --cpus), or use fewer threads and "
            "loader workers than it has cores",
        ),
        "gpu_power_cap": Advice(
            f"Compare the power limits of the GPUs (nvidia-smi -q -d POWER), and raise that of {who}"
        ),
        "gpu_heat": Advice(
            f"Look at the cooling of {who}",
            detail=": fans, airflow, and nvidia-smi -q -d TEMPERATURE",
        ),
        "other_processes": Advice(
            f"Find what else runs on {who} (top, or the scheduler's list of jobs), and move it, or "
            "reserve cores for the ranks"
        ),
        "stolen_cores": Advice(
            "use a machine type with dedicated cores",
            reason=f"The virtual machine of {who} shares its cores with others:",
        ),
        "major_faults": Advice(
            f"Give {who} more memory",
            detail=": pages that were dropped from memory are read again",
        ),
        "memory_pressure": Advice(
            f"Give {who} more memory, or lower the loader's workers and prefetch"
        ),
        "disk": Advice(
            f"Put the data of {who} on a faster disk, or into memory",
            detail=": cache it, or read larger pieces",
        ),
    }.get(code)


def advice_on_links(slow: SlowLinks) -> Advice:
    """Return advice on the cause of slow links."""
    where = f"of {listed('host', [slow.host])}" if slow.host else _between(slow.links)
    return Advice(
        f"Look at the network {where}",
        detail=": the speed that its card has negotiated (ethtool), errors and drops (ip -s link), the "
        "port and the cable, other traffic, and limits of the machine type",
    )


def whom(ranks: tuple[int, ...], hosts: tuple[str, ...]) -> str:
    """Name the hosts, or else the ranks."""
    if hosts:
        return listed("host", hosts)
    return ranks_in_words(ranks) if ranks else "all ranks"


def _with_unit(value: float, unit: str) -> str:
    number = significant(value)
    if unit == "%":
        return f"{number}%"
    if unit == "1/s":
        return f"{number} per second"
    if unit in _UNITS:
        return f"{number} {_UNITS[unit] if number == '1' else unit}"
    return amount(value, unit)
