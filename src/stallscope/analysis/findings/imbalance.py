"""Find waits with a known reason: for rank 0 and checkpoints, for loaders, and of devices for hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.blocks import NULL
from stallscope.arrays.distributions import student_quantile
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import capitalised, clipped, counted, listed, ranks_in_words
from stallscope.formatting.numbers import amount, between, percent, rate, significant

from ..advice.input_advice import for_copies, for_late_input
from ..advice.training_advice import checkpoints_on_rank_0, shared_validation, shorter_solo_work
from ..gains.baseline import InputRates
from ..gains.what_if import Advice, Bottleneck
from ..ledger.ledger import Ledger
from ..setup import Setup
from ..steps.alignment import PAUSES
from ..stragglers.lateness import Straggler
from .finding import Finding, LogIntervals, Records

# A smaller share of the step needs no explanation.
_WORTH = 0.05
# A smaller share of the job is not worth a change.
_WORTHWHILE = 0.02
# Ranks that validate the same data take about the same time, apart from waiting.
_ALIKE = 0.5


def ranks_starve_in_turn(from_input_ms: float, ledger: Ledger) -> Iterator[Finding]:
    """Find imbalance during which the waiting ranks' loaders worked.

    Args:
        from_input_ms: this imbalance, milliseconds per step.
        ledger: steady steps.
    """
    if from_input_ms < _WORTH * float(ledger.total.mean()) / 1e6:
        return
    imbalance = float(ledger.imbalance.mean()) / 1e6
    yield Finding(
        "ranks_starve_in_turn",
        "info",
        "Waiting caused by slow input",
        f"In {from_input_ms:.1f} of the {imbalance:.1f} ms that ranks wait per step, they wait for "
        "another rank's batch while their own loaders work. Which rank's batch arrives first is random.",
        (
            Advice(
                "Consider input and waiting together",
                detail=": faster loaders on all ranks fix both, and another machine for the last rank "
                "fixes neither",
            ),
        ),
    )


def rank_0_extra_work(stragglers: Sequence[Straggler]) -> Iterator[Finding]:
    """Find extra work of rank 0 between steps, which is rarely a hardware fault."""
    for straggler in stragglers:
        if straggler.ranks == (0,) and straggler.stage == "other":
            yield Finding(
                "rank_0_extra_work",
                "warning",
                "Rank 0 does extra work between steps",
                f"It takes {straggler.excess_ms.value:.1f} ms longer than its peers between steps, in "
                f"{percent(straggler.late_share)} of them; all ranks wait "
                f"{straggler.cost_ms.value:.1f} ms per step for it.",
                (
                    Advice(
                        "do less in them, less often, or on a thread",
                        reason="Callbacks that run on rank 0 only (logging, summaries, progress, "
                        "checkpoints) make all other ranks wait:",
                    ),
                ),
            )


# -- Report the rate of a loader run alone: in a verdict, in advice, and as a finding -------------


def input_too_slow_alone(
    rates: InputRates | None, setup: Setup, verdict: Bottleneck
) -> Iterator[Finding]:
    """Find a loader that is too slow even when run alone, unless the verdict reports it already."""
    if rates is None or rates.enough is not False or verdict.kind == "input":
        return
    yield Finding(
        "input_too_slow_alone",
        "warning",
        "The loader is slower than training",
        loader_rate_sentence(rates),
        for_late_input(setup, longest_stage(rates), rates.proposed),
    )


def longest_stage(rates: InputRates | None) -> str | None:
    """Return the kind of stages that takes longest; None if unknown."""
    if rates is None or rates.longest is None:
        return None
    times: dict[str, float] = defaultdict(float)
    for stage in rates.slowest.stages:
        # An unknown function is sped up in the same way as decoding.
        unknown = stage.kind == "other" and "Map(" in stage.name
        times["decode" if unknown else stage.kind] += stage.ms
    return max(times, key=times.__getitem__)


def loader_rate_sentence(rates: InputRates) -> str:
    """Describe the loader's rate, whether it is enough, and its longest stage; empty if unknown."""
    alone, longest, batch_ms = rates.alone, rates.longest, rates.slowest.ms
    if alone is None:
        return ""
    interval = "" if alone.ci95 is None else f" (95 %: {between(*alone.ci95)})"
    stage = ""
    if longest is not None and batch_ms is not None:
        stage = (
            f"; its longest stage is {longest.kind}: {clipped(longest.name)}, {longest.ms:.3g} ms of a "
            f"batch's {batch_ms:.3g} ms"
        )
    together = " Not all ranks measured at the same time: together, loaders may be slower."
    return (
        f"Run alone, the loader of rank {rates.slowest.rank} gives {rate(alone.value)}"
        f"{interval}{_comparison(rates)}{stage}.{'' if rates.at_once else together}"
    )


def _comparison(rates: InputRates) -> str:
    if rates.needed is None:
        return ""
    needed = f"{significant(rates.needed)} that a rank "
    needed += "trains on synthetic data" if rates.synthetic is not None else "needs"
    if rates.enough is None:
        return f", which cannot be distinguished from the {needed}"
    if rates.enough:
        return (
            f", more than the {needed}: it is late only during training, which competes with it for "
            "cores, disk or memory"
        )
    return f", less than the {needed}"


# -- Validation and checkpoints: the ranks that do them, and their cost to the job -----------------


def validation_on_all_ranks(records: Records) -> Iterator[Finding]:
    """Find validation that all ranks seem to do on the same data."""
    seconds = _seconds_per_rank(records, "validation")
    spent = np.array(list(seconds.values()))
    if len(spent) < 2 or spent.min() < _ALIKE * spent.max() or not records.seconds:
        return
    cost = float(np.median(spent))
    share = cost / records.seconds
    if share <= _WORTHWHILE:
        return
    who = f"{len(spent):,} of {len(records.ranks):,} ranks ({ranks_in_words(list(seconds))})"
    if len(spent) == len(records.ranks):
        who = f"All {len(spent):,} ranks"
    yield Finding(
        "validation_on_all_ranks",
        "info",
        "Several ranks validate",
        f"{who} validate for "
        f"about the same time: {cost:.1f} s on every rank, {share:.1%} of the job. Unless each has "
        "its own part of the validation data, they all compute the same.",
        (shared_validation(records.setup),),
    )


def checkpoint_on_all_ranks(records: Records) -> Iterator[Finding]:
    """Find checkpoints that several ranks write, which may overwrite each other."""
    if records.setup.sharded or records.setup.shares_model:
        # Each rank has a part of the model to write.
        return
    seconds = _seconds_per_rank(records, "checkpoint")
    hosts: dict[str, list[int]] = {}
    for rank in seconds:
        hosts.setdefault(records.last_log[rank].host, []).append(rank)
    host, together = max(hosts.items(), key=lambda pair: len(pair[1]), default=("", []))
    all_ranks = len(seconds) == records.run.size > 1
    if len(together) < 2 and not all_ranks:
        return
    who = ranks_in_words(list(seconds))
    where = f", {len(together)} of them on {listed('host', [host])}," if len(together) > 1 else ""
    number = int(np.count_nonzero(records.intervals.kind == "checkpoint"))
    yield Finding(
        "checkpoint_on_all_ranks",
        "warning",
        "Several ranks write checkpoints",
        f"{capitalised(who)}{where} wrote {counted(number, 'checkpoint')} in all: with the "
        "same path they overwrite each other and can corrupt the file.",
        (checkpoints_on_rank_0(records.setup),),
    )


def rank_0_alone(records: Records) -> Iterator[Finding]:
    """Find validation and checkpoints of one rank that the others wait for."""
    work = _solo_work(records)
    if work is None or not records.seconds:
        return
    (rank, *_), counts = work.rank.tolist(), Counter(sorted(work.kind.tolist()))
    cost = float(_waited(records, work).sum()) / 1e9
    share = cost / records.seconds
    if share <= _WORTHWHILE:
        return
    did = " and ".join(counted(number, kind) for kind, number in counts.items())
    yield Finding(
        "rank_0_alone",
        "info",
        f"Rank {rank} works while the others wait",
        f"Only rank {rank} did {did}; the others waited {cost:.1f} s for it, {share:.1%} of the job.",
        tuple(shorter_solo_work(records.setup, counts)),
    )


def _solo_work(records: Records) -> LogIntervals | None:
    """Find the rank with most work that no other did; None without any, or if a log is missing."""
    work = records.intervals.take(np.isin(records.intervals.kind, PAUSES))
    if len(records.ranks) < max(2, records.run.size) or not len(work.rank):
        return None
    work = work.take(np.lexsort((work.rank, work.kind, work.step)))
    # Entries of one kind before the same step are adjacent now, ordered by rank.
    new = (np.diff(work.step) != 0) | (work.kind[1:] != work.kind[:-1])
    starts = np.flatnonzero(np.concatenate([[True], new]))
    ends = np.append(starts[1:], len(work.rank)) - 1
    solo = np.repeat(work.rank[starts] == work.rank[ends], ends - starts + 1)
    if records.ranks_with_holes:
        solo &= _known_on_all_ranks(records, work)
    if not solo.any():
        return None
    work = work.take(solo)
    return work.take(work.rank == np.bincount(work.rank, work.end - work.begin).argmax())


def _known_on_all_ranks(records: Records, work: LogIntervals) -> Bools:
    """Mark work of a kind that one rank does, before steps around which no rank lost rows."""
    kinds = [np.unique(work.rank[work.kind == kind]) for kind in PAUSES]
    of_one = [kind for kind, ranks in zip(PAUSES, kinds, strict=True) if len(ranks) == 1]
    cells, steps = records.reductions.cells, records.reductions.steps
    known = np.isin(work.kind, of_one)
    for number in (work.step - 1, work.step):
        at = np.minimum(np.searchsorted(steps, number), max(len(steps) - 1, 0))
        known &= steps[at] == number
        known &= (cells.rows(records.reductions.column, at) != NULL).all(axis=1)
    return known


def _waited(records: Records, work: LogIntervals) -> Ints:
    """Compute by how many nanoseconds solo work delayed another rank's next reduction, per step."""
    reductions = records.reductions
    peer = next(rank for rank in reductions.ranks if rank != work.rank[0])
    at = records.completions_of(reductions.ranks.index(peer))
    known = (at[1:] != NULL) & (at[:-1] != NULL) & (np.diff(reductions.steps) == 1)
    if not known.any():
        return np.zeros(0, np.int64)
    following, gap = reductions.steps[1:][known], np.diff(at)[known]
    gap -= int(np.median(gap))
    work = work.take(np.isin(work.step, following))
    steps, place = np.unique(work.step, return_inverse=True)
    spent = np.bincount(place, work.end - work.begin).astype(np.int64)
    pauses = records.intervals.take(
        (records.intervals.rank == peer)
        & np.isin(records.intervals.kind, PAUSES)
        & np.isin(records.intervals.step, steps)
    )
    busy = np.bincount(np.searchsorted(steps, pauses.step), pauses.end - pauses.begin, len(steps))
    late = gap[np.searchsorted(following, steps)] - busy.astype(np.int64)
    return np.asarray(np.clip(late, 0, spent))


def _seconds_per_rank(records: Records, kind: str) -> dict[int, float]:
    """Return the seconds that each rank spent on work of this kind; ranks without any are left out."""
    chosen = records.intervals.take(records.intervals.kind == kind)
    ranks, place = np.unique(chosen.rank, return_inverse=True)
    seconds = np.bincount(place, chosen.end - chosen.begin) / 1e9
    return dict(zip(ranks.tolist(), seconds.tolist(), strict=True))


# -- Devices that wait for their hosts: values that are read in each step, and full memory ---------

# Once in a few steps, as for a progress bar, is no loss.
_OFTEN_PER_STEP = 0.5
_MOST_LINES = 3
# Copies that take a smaller share of a batch's time are not worth a change.
_WORTH_COPYING = 0.02
# A mean of fewer copies, or stretches of steps, has no interval worth the name.
_FEWEST = 4


def host_waits_for_device(records: Records) -> Iterator[Finding]:
    """Find lines at which the host waits for the device in most steps."""
    often = {
        rank: fact
        for rank, fact in _facts(records, "host_syncs").items()
        if fact.get("per_step", 0) >= _OFTEN_PER_STEP
    }
    if not often:
        return
    worst = max(often, key=lambda rank: often[rank]["per_step"])
    fact = often[worst]
    lines = [_line_in_words(line) for line in fact["lines"][:_MOST_LINES]]
    yield Finding(
        "host_waits_for_device",
        "info",
        "The host waits for the device within steps",
        f"{ranks_in_words([worst]).capitalize()} waited {fact['per_step']:.1f} times per step in "
        f"{counted(fact['steps'], 'step')}: {'; '.join(lines)}. After each wait the device has nothing "
        "to do until the host's next kernels arrive. How long that is was not measured.",
        (
            Advice(
                "Leave values on the device, and read them once in many steps",
                "total += loss.detach()  # and total.item() at the end of the epoch",
            ),
        ),
    )


def memory_is_full(records: Records) -> Iterator[Finding]:
    """Find ranks on which torch's allocator had to give all its memory back to go on."""
    facts = _facts(records, "allocator_retries")
    if not facts:
        return
    worst = max(facts, key=lambda rank: facts[rank]["count"])
    fact = facts[worst]
    also = f" So did {counted(len(facts) - 1, 'other rank')}." if len(facts) > 1 else ""
    yield Finding(
        "memory_is_full",
        "warning",
        "The accelerator's memory is full",
        f"{ranks_in_words([worst]).capitalize()} found no memory {counted(fact['count'], 'time')}, "
        "waited for the device, gave back all memory that it kept, and asked again. It kept up to "
        f"{fact['kept_bytes'] / 1e9:.1f} GB and used up to {fact['used_bytes'] / 1e9:.1f} GB at a time. "
        f"{_cost_in_words(_cost_of_retries(records, worst, fact['spans']))}{also}",
        (
            Advice(
                "Let memory be kept in pieces that fit any size",
                "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                unless="If it uses all that it keeps, a smaller batch is the only way.",
            ),
        ),
    )


def copies_to_device(records: Records) -> Iterator[Finding]:
    """Find copies of batches to the device that take a share of the step worth a change."""
    every = _facts(records, "device_copies")
    facts = {rank: fact for rank, fact in every.items() if fact["timed"] >= _FEWEST}
    if not facts:
        return
    worst = max(facts, key=lambda rank: facts[rank]["us"])
    fact, batch_ms, copy = facts[worst], _ms_per_batch(records, worst), _mean_copy(facts[worst])
    if batch_ms is None or copy.value < _WORTH_COPYING * batch_ms:
        return
    yield Finding(
        "copies_to_device",
        "info",
        "Copies to the device take time",
        f"On {ranks_in_words([worst])} a batch of {fact['bytes'] / 1e6:.1f} MB is copied to the device "
        f"in {amount(copy.value, 'ms', copy.ci95)}, {percent(copy.value / batch_ms)} of the time of a "
        f"batch ({fact['timed']:,} timed). Its stream computes nothing meanwhile.",
        (for_copies(records.last_log[worst].facts),),
    )


def _mean_copy(fact: Mapping[str, Any]) -> Mean:
    """Return the milliseconds of a copy; the copies that are timed are far apart."""
    mean, sd, number = fact["us"] / 1e3, fact["us_sd"] / 1e3, fact["timed"]
    half = float(student_quantile(0.975, number - 1) * sd / np.sqrt(number))
    return Mean(mean, (mean - half, mean + half))


def _ms_per_batch(records: Records, rank: int) -> float | None:
    """Return the usual milliseconds from one batch of a rank to the next."""
    took_ms, steps = _step_ms(records, rank), records.run.steps
    if not isinstance(steps, pa.Table) or not np.isfinite(took_ms).any():
        return None
    return float(np.nanmedian(took_ms)) / float(pc.mean(steps["micro"]).as_py())


def _step_ms(records: Records, rank: int) -> Floats:
    """Return the milliseconds from each reduction of a rank to the next, NaN where one is unknown."""
    reductions = records.reductions
    if rank not in reductions.ranks:
        return np.zeros(0)
    at = records.completions_of(reductions.ranks.index(rank)).astype(np.float64)
    at[at == NULL] = np.nan
    return np.asarray(np.diff(at) / 1e6)


def _facts(records: Records, name: str) -> dict[int, Mapping[str, Any]]:
    """Return a fact of the ranks that have it."""
    facts = {log.rank: log.facts.get(name) for log in records.last_log.values()}
    return {rank: fact for rank, fact in facts.items() if isinstance(fact, dict)}


def _line_in_words(line: Mapping[str, Any]) -> str:
    file, number, function = line["at"]
    name = PurePosixPath(file.replace("\\", "/")).name
    inside = f" in {function}" if function else ""
    return f"{clipped(f'{name}:{number}{inside}')} ({line['per_step']:.1f} per step)"


def _cost_of_retries(records: Records, rank: int, spans: list[list[int]]) -> Mean | None:
    """Return the milliseconds that a retry adds, against steps without; None where nothing can tell.

    Steps between two looks of the recorder are compared as a whole: which of them waited is unknown.
    """
    took_ms, steps = _step_ms(records, rank), np.asarray(records.reductions.steps)[1:]
    if not len(took_ms):
        return None
    inside = np.zeros(len(steps), bool)
    for first, last, _ in spans:
        inside |= _within(steps, first, last)
    if not np.isfinite(took_ms[~inside]).any():
        return None
    usual = float(np.nanmean(took_ms[~inside]))
    added = [
        float(np.nansum(took_ms[_within(steps, first, last)] - usual)) / count
        for first, last, count in spans
    ]
    return mean_with_interval(added, _FEWEST)


def _within(steps: npt.NDArray[np.int64], first: int, last: int) -> npt.NDArray[np.bool_]:
    return (steps >= first) & (steps < last)


def _cost_in_words(cost: Mean | None) -> str:
    if cost is None or cost.ci95 is None or cost.ci95[0] <= 0:
        return "What a retry costs cannot be told from these steps."
    low, high = cost.ci95
    return f"A retry took {cost.value:.1f} ms ({low:.1f} to {high:.1f})."
