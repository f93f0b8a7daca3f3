"""The verdict: what holds the run back most, of what could be won back.

The ledger describes; the verdict rests on what-if gains. Faults of named ranks are healed first, so
that a slow input on one rank is that rank's fault and not the loader's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .ledger import STAGES, Ledger
from .result import Bottleneck
from .stragglers import slow_hosts, slow_ranks
from .what_if import WhatIf, healed_arrival, saved_by, what_if, without_excess

Ints = npt.NDArray[np.int64]

#: What cannot win back this share of the step is not worth a verdict.
WORTHWHILE = 0.05
# Fewer are an impression and no measurement, however alike they are.
_FEWEST_STEPS = 20
#: Without a baseline, what dispatching a step and a plain optimizer update are taken to need.
ASSUMED_MS = 2.0

_ADVICE_FOR_A_RANK = {
    "input": (
        "Look at this rank's share of the data and the disk or network it reads from: shards of "
        "another size, larger files, a cold cache, fewer loader processes.",
    ),
    "compute": (
        "Look at this rank's device and host: throttling, other processes on it, fewer or wrongly "
        "pinned cores (threads, OMP_NUM_THREADS), more work per sample than the others.",
    ),
    "other": (
        "Look at what only this rank does between steps: logging, checkpoints, metrics fetched in "
        "every batch, extra callbacks.",
    ),
}

_ADVICE = {
    "input": (
        "Prefetch and parallelise the input pipeline: dataset.map(…, num_parallel_calls=tf.data."
        "AUTOTUNE).prefetch(tf.data.AUTOTUNE), or more DataLoader workers.",
        "Shard before shuffling, and cache what is decoded alike in every epoch.",
    ),
    "compute": (
        "The step is spent in forward and backward passes: a larger batch, mixed precision or "
        "faster devices are what is left.",
    ),
    "other": (
        "Look at what runs between steps on this rank: callbacks, logging, checkpoints, metrics "
        "fetched in every batch.",
    ),
    "allreduce": (
        "Communicate less or overlap more: fp16 compression, a larger batch per rank, gradient "
        "accumulation, and Horovod's fusion threshold and cycle time (HOROVOD_AUTOTUNE=1).",
    ),
}


@dataclass(frozen=True)
class Replay:
    """What the run's steps say when replayed without each fault."""

    #: Positions of the named ranks: those that are slow, and those of slow hosts.
    named: tuple[int, ...]
    hosts: tuple[str, ...]
    too_few_steps: bool
    gains: tuple[WhatIf, ...]
    #: The stage that makes the named ranks slow.
    cause: str | None
    #: How many milliseconds later than their peers the named ranks are ready, by stage.
    excess_ms: dict[str, float]


def replay(ledger: Ledger, hosts: tuple[str, ...], baseline: Ledger | None) -> Replay:
    """Test for slow ranks and hosts, and compute what each fix gains.

    Args:
        ledger: steady steps.
        hosts: per rank, its host.
        baseline: steady steps of the baseline.
    """
    arrival = ledger.arrival
    named_hosts = slow_hosts(arrival, hosts)
    # Ranks of a slow host hide each other; the other ranks are tested among themselves.
    others = [index for index, host in enumerate(hosts) if host not in named_hosts]
    stragglers = slow_ranks(arrival[:, others])
    too_few_steps = stragglers.too_few_steps and not named_hosts
    named = sorted({*(others[r] for r in stragglers.named), *set(range(len(hosts))) - set(others)})
    healed = healed_arrival(arrival, named)
    gains = []
    if named:
        gains.append(what_if("imbalance", ledger, saved_by(arrival, healed)))
        for rank in (others[r] for r in stragglers.named):
            alone = healed_arrival(arrival, [rank])
            gains.append(what_if(f"rank:{ledger.ranks[rank]}", ledger, saved_by(arrival, alone)))
    for host in named_hosts:
        own = [index for index, name in enumerate(hosts) if name == host]
        alone = healed_arrival(arrival, own)
        gains.append(what_if(f"host:{host}", ledger, saved_by(arrival, alone)))
    for stage in ("input", "other"):
        better = _stage_as_baseline(healed, ledger, stage, named, baseline)
        gains.append(what_if(stage, ledger, saved_by(healed, better)))
    if len(ledger.ranks) > 1:
        gains.append(what_if("allreduce", ledger, ledger.allreduce))
    excess = _excess(ledger, named)
    cause = max(excess, key=excess.__getitem__) if excess else None
    return Replay(tuple(named), named_hosts, too_few_steps, tuple(gains), cause, excess)


def _stage_as_baseline(
    arrival: Ints, ledger: Ledger, stage: str, healed: Sequence[int], baseline: Ledger | None
) -> Ints:
    """Arrivals if a stage took what it takes in the baseline; healed ranks are healed already."""
    own = getattr(ledger, stage).copy()
    if baseline is None or not len(baseline):
        own[:, healed] = 0
        return without_excess(arrival, own, ASSUMED_MS * 1e6)
    n = len(own)
    quantiles = np.quantile(getattr(baseline, stage), (np.arange(n) + 0.5) / n).astype(np.int64)
    better = arrival.copy()
    for rank in range(own.shape[1]):
        if rank not in healed:
            # The k-th smallest becomes the baseline's matching quantile: no bias from noise.
            order = np.argsort(own[:, rank], kind="stable")
            better[order, rank] += quantiles - own[order, rank]
    return better


def _excess(ledger: Ledger, named: Sequence[int]) -> dict[str, float]:
    if not named:
        return {}
    healthy = [r for r in range(len(ledger.ranks)) if r not in set(named)]
    if not healthy:
        return {}
    excess = {}
    for stage in STAGES:
        means = getattr(ledger, stage).mean(axis=0) / 1e6
        excess[stage] = float(means[list(named)].mean() - np.median(means[healthy]))
    return excess


def decide(
    ledger: Ledger, found: Replay, missing_ranks: Sequence[int], has_baseline: bool
) -> Bottleneck:
    """The verdict over a run's steady steps."""
    step_ms = float(ledger.total.mean()) / 1e6
    candidates = [
        gain for gain in found.gains if gain.fix in ("imbalance", "input", "other", "allreduce")
    ]
    candidates.sort(key=lambda gain: gain.saved_ms.value, reverse=True)
    if found.too_few_steps and len(ledger.ranks) > 1:
        # Nobody can be named, but what costs time on whichever rank may be plain all the same.
        candidates = [gain for gain in candidates if _surely_worthwhile(gain, step_ms)]
        if not candidates or len(ledger) < _FEWEST_STEPS:
            return _insufficient(
                f"{len(ledger)} steady steps, each much like the one before, are too few to tell a "
                "fault from chance; a few hundred are enough in most runs"
            )
    if not candidates or candidates[0].saved_ms.value < WORTHWHILE * step_ms:
        return _nothing_to_gain(candidates, step_ms, has_baseline)
    best = candidates[0]
    if best.fix == "allreduce" and missing_ranks:
        return _insufficient(
            f"logs of {_ranks(missing_ranks)} are missing: what looks like allreduce may be waiting "
            "for them"
        )
    rival = next((gain for gain in candidates[1:] if _overlap(best, gain)), None)
    if rival is not None:
        return Bottleneck(
            "balanced",
            None,
            f"{_title(best.fix)} and {rival.fix} could each win back about "
            f"{best.saved_ms.value:.1f} ms of a {step_ms:.1f} ms step; the steps there are cannot "
            "tell which is more.",
        )
    return _verdict(best, ledger, found, step_ms, has_baseline)


def _verdict(
    best: WhatIf, ledger: Ledger, found: Replay, step_ms: float, has_baseline: bool
) -> Bottleneck:
    gain = f"{best.saved_ms.value:.1f} of {step_ms:.1f} ms per step"
    if best.fix == "imbalance":
        ranks = tuple(ledger.ranks[r] for r in found.named)
        who = f"host {', '.join(found.hosts)} ({_ranks(ranks)})" if found.hosts else _ranks(ranks)
        cause = found.cause or "compute"
        critical = np.isin(ledger.critical, found.named).mean()
        return Bottleneck(
            "imbalance",
            cause,
            f"The others wait for {who}: last to be ready in {critical:.0%} of steps, "
            f"with {found.excess_ms.get(cause, 0.0):.1f} ms more {cause} than the others' median. "
            f"Healing that saves {gain}.",
            ranks=ranks,
            hosts=found.hosts,
            advice=_ADVICE_FOR_A_RANK[cause],
        )
    where = "" if found.too_few_steps or len(ledger.ranks) == 1 else " on all ranks"
    evidence = {
        "input": f"Batches come late{where}: input costs {gain}",
        "other": f"Work between steps costs {gain}{where}",
        "allreduce": f"Exposed allreduce takes {gain}; if it cost nothing, that is what it would save",
    }[best.fix]
    if best.fix != "allreduce":
        evidence += (
            " beyond the baseline's."
            if has_baseline
            else f", if {ASSUMED_MS:g} ms is what it needs; a synthetic baseline would tell."
        )
    else:
        evidence += "."
    if found.too_few_steps and len(ledger.ranks) > 1:
        evidence += (
            " Whether a rank is slower than the others, so few independent steps cannot tell."
        )
    return Bottleneck(
        best.fix,
        best.fix if best.fix in STAGES else None,
        evidence,
        advice=_ADVICE[best.fix],
    )


def _nothing_to_gain(
    candidates: Sequence[WhatIf], step_ms: float, has_baseline: bool
) -> Bottleneck:
    most = candidates[0] if candidates else None
    rest = (
        f"the most that could be won back is {max(most.saved_ms.value, 0.0):.1f} of {step_ms:.1f} ms "
        f"({most.fix})"
        if most
        else "nothing could be won back"
    )
    if has_baseline:
        return Bottleneck(
            "compute",
            "compute",
            f"The step is compute, as in the baseline: {rest}.",
            advice=_ADVICE["compute"],
        )
    return Bottleneck(
        "balanced",
        None,
        f"No fault found: {rest}. Whether compute is all it could be, a synthetic baseline would tell.",
    )


def _insufficient(reason: str) -> Bottleneck:
    return Bottleneck("insufficient_data", None, reason[0].upper() + reason[1:] + ".")


def _surely_worthwhile(gain: WhatIf, step_ms: float) -> bool:
    """Whether even the low end of the gain's interval is worth a verdict."""
    ci95 = gain.saved_ms.ci95
    return ci95 is not None and ci95[0] >= WORTHWHILE * step_ms


def _overlap(best: WhatIf, rival: WhatIf) -> bool:
    """Whether each gain lies within the other's interval."""
    mine, theirs = best.saved_ms.ci95, rival.saved_ms.ci95
    if mine is None or theirs is None:
        return False
    return (
        mine[0] <= rival.saved_ms.value <= mine[1] and theirs[0] <= best.saved_ms.value <= theirs[1]
    )


def _ranks(ranks: Sequence[int]) -> str:
    numbers = [str(rank) for rank in ranks[:8]] + (["…"] if len(ranks) > 8 else [])
    return f"rank {numbers[0]}" if len(ranks) == 1 else f"ranks {', '.join(numbers)}"


def _title(word: str) -> str:
    return word[0].upper() + word[1:]
