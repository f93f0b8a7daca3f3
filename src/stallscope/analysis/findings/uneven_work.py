"""Check that ranks have equal work: epochs, shards, batches, the order of samples, and stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stallscope.arrays.blocks import NULL, Block
from stallscope.arrays.stats import mean_with_interval
from stallscope.arrays.types import Ints
from stallscope.formatting.lists import counted, joined, ranks_in_words
from stallscope.formatting.numbers import between, percent, significant
from stallscope.run import Log, PipelinePart, Run

from ..advice.training_advice import even_work, sharding, shuffled_anew
from ..gains.what_if import Advice
from ..ledger.ledger import Ledger
from .finding import CompletedEpochs, Finding, Records

# Relative difference below which epochs have the same length; a last batch may be missing.
_SAME_LENGTH = 0.05
# Facts that are equal in two runs of the same job, apart from the number of ranks.
_SAME_JOB = ("model", "parameters", "batch_size", "backward_passes_per_step")
_SHUFFLED_ONCE = "samples are shuffled once, and every epoch repeats that order"
_NEVER = "nothing shuffles samples before training"
_EQUAL_WEIGHTS = (
    "Averaging gives every rank's gradients the same weight, so samples of smaller batches count "
    "more."
)
_BY_SAMPLE = Advice(
    "Shard by sample rather than by file, or give every rank the same number of files of equal size"
)

# Smaller differences come from the last batches of epochs, and their cost is not measurable.
_UNEVEN = 0.01


def epochs_of_different_lengths(records: Records) -> Iterator[Finding]:
    """Find epochs in which ranks made different numbers of steps."""
    epochs = records.epochs
    if len(records.ranks) < 2 or not len(epochs.steps):
        return
    # Sort by fit and epoch, and within each by length, the shortest first.
    order = np.lexsort((epochs.steps, epochs.epoch, epochs.part))
    changes = np.diff(epochs.part[order]) | np.diff(epochs.epoch[order])
    starts = np.flatnonzero(np.concatenate([[1], changes]))
    ends = np.append(starts[1:], len(order)) - 1
    fewest, most = order[starts], order[ends]
    difference = epochs.steps[most] - epochs.steps[fewest]
    worst = int(difference.argmax())
    if not difference[worst]:
        return
    short, long = fewest[worst], most[worst]
    steps = counted(int(epochs.steps[short]), "step")
    yield Finding(
        "epochs_of_different_lengths",
        "warning",
        "Epochs have different lengths on different ranks",
        f"In epoch {epochs.epoch[short]} rank {epochs.rank[short]} made {steps} and rank "
        f"{epochs.rank[long]} {epochs.steps[long]:,}; lengths differ in "
        f"{np.count_nonzero(difference):,} of {counted(len(difference), 'epoch')}. Every step needs "
        f"every rank: rank {epochs.rank[short]} is in its next epoch while others are still in this "
        "one.",
        (
            Advice(
                "Give every rank the same number of batches (equal shards, drop_remainder=True, or "
                "steps_per_epoch)",
                note="Otherwise some ranks see their batches more often, and at the end the ranks with "
                "more steps wait forever.",
            ),
        ),
    )


def unequal_steps(records: Records) -> Iterator[Finding]:
    """Find ranks that made different numbers of steps in a completed run."""
    if records.run.status != "completed":
        return
    intervals = records.intervals
    ends = intervals.take((intervals.kind == "end") & (intervals.step != NULL))
    # A rank with fewer fits than others lacks a log, not steps.
    fits = Counter(records.run.logs[index].rank for index in {*records.sessions[[*records.logs]]})
    last = {
        int(rank): int(step)
        for rank, step in sorted(zip(ends.rank, ends.step, strict=True))
        if fits[int(rank)] == max(fits.values())
    }
    if len(set(last.values())) < 2:
        return
    fewest, most = min(last, key=last.__getitem__), max(last, key=last.__getitem__)
    yield Finding(
        "unequal_steps",
        "warning",
        "Ranks made different numbers of steps",
        f"At its end rank {fewest} had made {counted(last[fewest], 'step')} and rank {most} "
        f"{last[most]:,}: the last {last[most] - last[fewest]:,} were not made by all ranks and are "
        "not in the ledger.",
        (
            Advice(
                "Give every rank the same number of batches",
                detail=": with Horovod, a rank that makes fewer steps makes the others wait forever, "
                "unless it calls hvd.join()",
            ),
        ),
    )


def steps_not_divided(records: Records) -> Iterator[Finding]:
    """Find epochs as long as those of one rank: the steps were not divided among the ranks."""
    run, single = records.run, records.single
    if single is None or not _same_job(run, single):
        return
    on_all, on_one = _usual_length(records.epochs), _usual_length(Records(single).epochs)
    if not on_all or not on_one or abs(on_all / on_one - 1) > _SAME_LENGTH:
        return
    yield Finding(
        "steps_not_divided",
        "warning",
        "Steps per epoch are not divided by the number of ranks",
        f"{run.size} ranks make {on_all:,.0f} steps in an epoch, and one rank {on_one:,.0f} with the "
        f"same batch size of {run.fact('batch_size')}: if the data is the same, every batch is seen "
        f"{run.size} times in an epoch.",
        tuple(sharding(records.setup)),
    )


def _same_job(run: Run, single: Run) -> bool:
    if single.size != 1 or run.size < 2 or run.synthetic or single.synthetic:
        return False
    if run.fact("batch_size") is None:
        return False
    return all(run.fact(name) == single.fact(name) for name in _SAME_JOB)


def _usual_length(epochs: CompletedEpochs) -> float:
    """Return the median steps of a completed epoch; 0 if there is none."""
    return float(np.median(epochs.steps)) if len(epochs.steps) else 0.0


def same_order_every_epoch(records: Records) -> Iterator[Finding]:
    """Find ranks that repeat the same order, if they made several epochs."""
    several = set(records.epochs.rank[records.epochs.epoch > 0].tolist())
    ranks_by_reason: dict[str, list[int]] = {}
    for rank, log in records.last_log.items():
        reason = _reason(log) if rank in several else None
        if reason is not None:
            ranks_by_reason.setdefault(reason, []).append(rank)
    if not ranks_by_reason:
        return
    reason, ranks = next(iter(ranks_by_reason.items()))
    shuffles = reason != _NEVER
    unless = "" if shuffles else "Not if the order matters, or the data is shuffled already."
    advised = shuffled_anew(records.setup, shuffles)
    yield Finding(
        "same_order_every_epoch",
        "warning" if shuffles else "info",
        "Every epoch sees its samples in the same order",
        f"On {ranks_in_words(sorted(ranks))}: {reason}. Then every epoch has the same batches.",
        (replace(advised, unless=unless),),
    )


def _reason(log: Log) -> str | None:
    """Return why the samples of several epochs have the same order; None if they may not have it."""
    # The order of random batches does not matter.
    if log.facts.get("synthetic"):
        return None
    shuffled = log.facts.get("shuffled")
    if shuffled == "alike":
        return _SHUFFLED_ONCE
    if shuffled == "never":
        return _NEVER
    orders = log.facts.get("orders")
    if not isinstance(orders, list) or not all(isinstance(order, dict) for order in orders):
        return None
    if len(orders) > 1 and all(order.get("shuffles") is False for order in orders):
        return _NEVER
    drawn = [order.get("drawn") for order in orders]
    if len(orders) < 2 or None in drawn or any(samples != drawn[0] for samples in drawn):
        return None
    return (
        f"set_epoch of the DistributedSampler was not called: {len(orders)} epochs drew their order "
        "from the same seed and epoch"
    )


# -- Check that ranks have equal shares of the work -----------------------------------------------


def uneven_batches(records: Records) -> Iterator[Finding]:
    """Find ranks with batches of different sizes."""
    per_step = _samples_per_step(records) or _batch_sizes(records)
    for fewest, most, more in _fewest_and_most(per_step):
        *first, last = even_work(records.setup)
        yield Finding(
            "uneven_batches",
            "warning",
            "Ranks have batches of different sizes",
            f"Rank {most} processes {per_step[most].known:,.1f} samples per step and rank {fewest} "
            f"{per_step[fewest].known:,.1f}: rank {most} has {more:.1%} more to compute in every step, "
            "and the others wait for it unless its device is faster by as much.",
            (*first, replace(last, note=_EQUAL_WEIGHTS)),
        )


def uneven_shards(records: Records) -> Iterator[Finding]:
    """Find ranks with shards of different sizes."""
    per_step, steps = _samples_per_step(records), _steps_per_epoch(records)
    per_epoch = {
        rank: _Samples(*(value * steps[rank] for value in samples))
        for rank, samples in per_step.items()
        if rank in steps
    }
    for fewest, most, more in _fewest_and_most(per_epoch):
        yield Finding(
            "uneven_shards",
            "warning",
            "Ranks have shards of different sizes",
            f"Rank {most} processes {per_epoch[most].known:,.0f} samples in an epoch and rank {fewest} "
            f"{per_epoch[fewest].known:,.0f}: rank {most} has {more:.1%} more to compute.",
            (*even_work(records.setup), _BY_SAMPLE),
        )


class _Samples(NamedTuple):
    """A rank's samples: the mean of its known steps, and the bounds of that over all of its steps."""

    known: float
    least: float
    most: float


def _samples_per_step(records: Records) -> dict[int, _Samples]:
    """Return each rank's average samples per step; empty unless known for all ranks.

    Steps that a rank lost, and others have, may have had as few or as many samples as any step.
    """
    ranks, logs = [log.rank for log in records.logs.values()], list(records.logs)
    totals = records.totals
    counted, samples = (
        np.bincount(ranks, values[logs])[records.ranks]
        for values in (totals.counted, totals.samples)
    )
    if not counted.all():
        return {}
    fewest, most = totals.fewest_samples[logs].min(), totals.most_samples[logs].max()
    lost = counted.max() - counted
    bounds = ((samples + lost * size) / counted.max() for size in (fewest, most))
    columns = (values.tolist() for values in (samples / counted, *bounds))
    return dict(zip(records.ranks, map(_Samples, *columns), strict=True))


def _steps_per_epoch(records: Records) -> dict[int, float]:
    """Return each rank's average steps per epoch; ranks without a whole epoch are left out.

    Ranks may know different epochs, so each epoch is compared with the longest of the same number.
    """
    epochs = records.epochs
    if not len(epochs.steps):
        return {}
    fits = np.stack([epochs.part, epochs.epoch], axis=1)
    _, place = np.unique(fits, axis=0, return_inverse=True)
    longest = np.zeros(place.max() + 1, np.int64)
    np.maximum.at(longest, place, epochs.steps)
    shorter = longest[place] - epochs.steps
    return {
        rank: float(longest.mean() - shorter[epochs.rank == rank].mean())
        for rank in np.unique(epochs.rank).tolist()
    }


def _batch_sizes(records: Records) -> dict[int, _Samples]:
    """Return the batch size in each rank's last log; empty unless all ranks recorded it."""
    sizes = {rank: log.facts.get("batch_size") for rank, log in records.last_log.items()}
    known = {rank: _Samples(*[float(size)] * 3) for rank, size in sizes.items() if size}
    return known if len(known) == len(sizes) else {}


def _fewest_and_most(samples: dict[int, _Samples]) -> Iterator[tuple[int, int, float]]:
    """Find the ranks with the fewest and the most, and the difference, unless they may be equal."""
    if len(samples) > 1:
        fewest = min(samples, key=lambda rank: samples[rank].most)
        most = max(samples, key=lambda rank: samples[rank].least)
        if 0 < samples[fewest].most * (1 + _UNEVEN) < samples[most].least:
            yield fewest, most, samples[most].known / samples[fewest].known - 1


# -- Compare the stages of a pipeline, and what its schedule costs --------------------------------

_OF_DEEPSPEED = "TrainSchedule"
_OF_MEGATRON = (
    "forward_backward_pipelining_without_interleaving",
    "forward_backward_pipelining_with_interleaving",
)
# Schedules whose first and last micro-batches leave stages idle; others fill that with other work.
_FILL_AND_DRAIN = (
    "ScheduleGPipe",
    "Schedule1F1B",
    "ScheduleInterleaved1F1B",
    "ScheduleLoopedBFS",
    _OF_DEEPSPEED,
    *_OF_MEGATRON,
)
# Equal stages, or more micro-batches, that save less of a step are not worth a change.
_WORTH_OF_STEP = 0.02
_MUCH_BUBBLE = 0.1


def pipeline_stages(ledger: Ledger, parts: Mapping[int, PipelinePart]) -> Iterator[Finding]:
    """Describe the work of a pipeline's stages, what unequal ones cost, and the schedule's bubble.

    Args:
        ledger: steady steps.
        parts: by rank, its part of the pipeline.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for position, rank in enumerate(ledger.ranks):
        if rank in parts:
            groups.setdefault(parts[rank].stages, []).append(position)
    names = sorted(groups)
    if len(names) < 2 or not len(ledger) or len(parts) < len(ledger.ranks):
        return
    part = parts[ledger.ranks[0]]
    # The fastest rank of each stage: a slow one is a straggler, and says nothing about its stage.
    work = np.array(
        [ledger.cells.per_step(_least_work, np.array(groups[stages])) for stages in names]
    )
    means, mean = work.mean(axis=1), work.mean(axis=0)
    longest, shortest = int(means.argmax()), int(means.argmin())
    step = float(ledger.total.mean())
    later = (part.micro_batches - 1) / part.micro_batches
    saved = mean_with_interval((work[longest] - mean) * later).scaled(1e-6)
    uneven = saved.ci95 is not None and saved.ci95[0] >= _WORTH_OF_STEP * step / 1e6
    sentences = [
        f"Stages {joined([_name(stages) for stages in names])} work "
        f"{joined([significant(float(ns) / 1e6) for ns in means])} ms of a {significant(step / 1e6)} "
        f"ms step, and wait {percent(1 - float(means.mean()) / step)} of it on average."
    ]
    bubble = _bubble(part, len(names))
    if bubble is not None:
        sentences.append(
            f"{part.schedule} with {counted(part.micro_batches, 'micro-batch', 'micro-batches')} lets "
            f"equal stages wait {percent(bubble)} of a step."
        )
    advice = []
    if uneven and saved.ci95 is not None:
        sentences.append(
            f"Stage {_name(names[longest])} works {percent(float(means[longest] / mean.mean()) - 1)} "
            f"longer than the mean stage: equal stages would save up to {significant(saved.value)} ms "
            f"(95%: {between(*saved.ci95)})."
        )
        advice.append(
            Advice(
                f"Move layers from stage {_name(names[longest])} to stage {_name(names[shortest])}",
                detail=", so that all stages work equally long",
            )
        )
    if bubble is not None and bubble >= _MUCH_BUBBLE:
        advice.append(
            Advice(
                "Split each batch into more micro-batches",
                _with_micro_batches(part.schedule, 2 * part.micro_batches),
                unless="Not if smaller micro-batches keep the device less busy.",
            )
        )
    yield Finding(
        "pipeline_stages",
        "warning" if uneven else "info",
        "Unequal pipeline stages" if uneven else "Pipeline stages",
        " ".join(sentences),
        tuple(advice),
    )


def _with_micro_batches(schedule: str, number: int) -> str:
    """Return the line that asks for so many micro-batches."""
    if schedule == _OF_DEEPSPEED:
        return f'"gradient_accumulation_steps": {number}'
    if schedule in _OF_MEGATRON:
        return f"forward_backward_func(num_microbatches={number}, ...)"
    return f"{schedule}(stage, n_microbatches={number}, loss_fn=loss_fn)"


def _name(stages: tuple[int, ...]) -> str:
    return "+".join(map(str, stages))


def _least_work(block: Block, ranks: Ints) -> Ints:
    return np.asarray(block.of("arrival", ranks).min(axis=1))


def _bubble(part: PipelinePart, stages: int) -> float | None:
    """Return the share of a step that equal stages wait while the pipeline fills and drains."""
    if part.schedule not in _FILL_AND_DRAIN:
        return None
    rounds = len(part.stages) * part.micro_batches
    return (stages - 1) / (rounds + stages - 1)
