"""Check that ranks that train one model agree, and stay together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.blocks import LATEST, NULL, Block, of_each
from stallscope.arrays.distributions import ndimage
from stallscope.arrays.pivot import by_parts
from stallscope.arrays.stats import evenly
from stallscope.arrays.types import Ints
from stallscope.formatting.lists import clipped, ranks_in_words
from stallscope.run import Log

from ..advice.training_advice import ONE_BROADCAST, averaged_metrics, broadcast_once
from ..gains.what_if import Advice
from ..setup import AVERAGES, callbacks_of, number
from .finding import Finding, Records, ReductionTimes

# Relative differences. Reducing in another order changes weights by less.
_SAME_WEIGHTS = 1e-3
_SAME_RATE = 1e-5
# Two fits with a broadcast each may be a warm-up and the training; more are a loop.
_FITS_OF_A_LOOP = 3
_BROADCASTS = "horovod.BroadcastGlobalVariablesCallback"
# Callbacks of these packages are known not to average metrics over ranks.
_KNOWN = ("keras", "tf_keras", "tensorflow", "horovod", "stallscope")
# These change the training; other callbacks that monitor a metric only choose what to save.
_DECIDE = ("ReduceLROnPlateau", "EarlyStopping")

# One step would suffice if all timestamps were exact.
_SEVERAL_STEPS = 3
_FEWEST_APART = 0.01
# Without timestamps only the host's ends of steps are known; a host queues this many steps ahead.
_STEPS_AHEAD_OF_DEVICE = 50
# Hosts are compared on this many sampled steps.
_SAMPLED_STEPS = 1000
_SMOOTHED_STEPS = 5
_FORGIVEN_JUMPS = 3
_TOLERANCE_SECONDS = 2.0
# Twice the largest rate at which a clock is slewed.
_DRIFT = 1e-3


def weights_differ(records: Records) -> Iterator[Finding]:
    """Find ranks with different weights although gradients are reduced: they started differently."""
    samples = {rank: _sample(log) for rank, log in records.last_log.items()}
    known = {rank: sample for rank, sample in samples.items() if sample is not None}
    if len(known) < 2 or records.run.fact("gradients_reduced") is not True:
        return
    reference, (after, weight, values) = next(iter(known.items()))
    # Only samples of the same weights after the same step are comparable.
    comparable = {
        rank: sample[2] for rank, sample in known.items() if sample[:2] == (after, weight)
    }
    differing = [rank for rank, theirs in comparable.items() if not _same(theirs, values)]
    if not differing:
        return
    callbacks = [callbacks_of(log) for log in records.last_log.values()]
    names = {callback.get("name") for of_rank in callbacks for callback in of_rank}
    missing = all(callbacks) and _BROADCASTS not in names
    yield Finding(
        "weights_differ",
        "error",
        "Ranks train different models",
        f"After the first steps {clipped(weight)} starts with {values[0]:.4g} on rank {reference} and "
        f"with {comparable[differing[0]][0]:.4g} on rank {differing[0]}; "
        f"{_differ(differing, len(comparable), reference)}. Gradients are reduced, so equal models stay "
        f"equal.{' No callback broadcasts them.' if missing else ''}",
        (broadcast_once(records.setup),),
    )


def learning_rates_differ(records: Records) -> Iterator[Finding]:
    """Find the first epoch that started with different learning rates on different ranks."""
    changes = {rank: _rate_changes(log) for rank, log in records.last_log.items()}
    completed = dict(
        sorted(zip(records.epochs.rank.tolist(), records.epochs.epoch.tolist(), strict=True))
    )
    for epoch in sorted(set().union(*changes.values())):
        # A rank may not have started an epoch that it did not complete and for which it has no rate; one
        # that lost lines may have lost the rate.
        rates = {
            rank: of_rank[max(start for start in of_rank if start <= epoch)]
            for rank, of_rank in changes.items()
            if min(of_rank, default=epoch + 1) <= epoch
            and (
                epoch in of_rank
                or (epoch <= completed.get(rank, -1) and rank not in records.ranks_with_holes)
            )
        }
        reference = min(rates)
        usual = rates[reference]
        differing = [
            rank
            for rank, rate in rates.items()
            if not math.isclose(rate, usual, rel_tol=_SAME_RATE)
        ]
        if differing:
            yield Finding(
                "learning_rates_differ",
                "error",
                "Ranks train with different learning rates",
                f"Epoch {epoch} started with a rate of {usual:g} on rank {reference} and of "
                f"{rates[differing[0]]:g} on rank {differing[0]}; "
                f"{_differ(differing, len(rates), reference)}. The models then diverge although they "
                "get the same gradients.",
                (averaged_metrics(records.setup),),
            )
            return


def metrics_not_averaged(records: Records) -> Iterator[Finding]:
    """Find callbacks that use a metric before it is averaged; Keras calls callbacks in order."""
    if records.run.size < 2 or records.setup.library != "horovod":
        return
    ranks_by_use: dict[str, set[int]] = {}
    late = False
    for rank, log in records.last_log.items():
        callbacks = callbacks_of(log)
        names = [str(callback.get("name")) for callback in callbacks]
        for place, callback in enumerate(callbacks):
            metric = callback.get("monitor")
            if not isinstance(metric, str) or AVERAGES in names[:place]:
                continue
            # A callback of the user may average, too.
            if AVERAGES not in names and not all(
                name.partition(".")[0] in _KNOWN for name in names[:place]
            ):
                continue
            late = late or AVERAGES in names
            kind = names[place].rpartition(".")[2]
            ranks_by_use.setdefault(f"{kind} by {clipped(metric)}", set()).add(rank)
    if not ranks_by_use:
        return
    decides = any(text.startswith(_DECIDE) for text in ranks_by_use)
    users = "; ".join(
        f"{text} on {ranks_in_words(sorted(ranks))}" for text, ranks in ranks_by_use.items()
    )
    where = "only after them" if late else "not among the callbacks"
    yield Finding(
        "metrics_not_averaged",
        "warning" if decides else "info",
        "Callbacks use one rank's own metrics",
        f"{users}: MetricAverageCallback is {where}, so each rank uses the loss of its own data. "
        + (
            "Then rates change, or training stops, on some ranks only. A rank that stops early leaves "
            "the others waiting."
            if decides
            else "The best checkpoint is then the best for that rank's data only."
        ),
        (averaged_metrics(records.setup),),
    )


def broadcast_in_every_fit(records: Records) -> Iterator[Finding]:
    """Find jobs that broadcast the model in every fit, such as one fit per epoch: once is enough."""
    by_rank = Counter(
        log.rank
        for log in records.logs.values()
        # A log that continues another file repeats the facts of its fit.
        if (number(log.facts.get("broadcasts")) or 0) > 0 and not log.continues
    )
    times = max(by_rank.values(), default=0)
    if times < _FITS_OF_A_LOOP:
        return
    size = records.setup.parameters
    moved = "" if not size else f" of {size:,} parameters"
    yield Finding(
        "broadcast_in_every_fit",
        "info",
        "The model is broadcast repeatedly",
        f"{times} fits of this job each broadcast the model{moved} from rank 0 after their first "
        "batch, and each traces its train step again.",
        (ONE_BROADCAST,),
    )


def _sample(log: Log) -> tuple[int, str, tuple[float, ...]] | None:
    """Return after how many calls or steps weights were sampled, their name, and the values."""
    fact = log.facts.get("weights")
    if not isinstance(fact, dict):
        return None
    after, name, numbers = fact.get("after"), fact.get("of"), _numbers(fact.get("values"))
    if not isinstance(after, int) or not isinstance(name, str) or not numbers:
        return None
    return after, name, numbers


def _numbers(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(isinstance(value, (int, float)) for value in values):
        return ()
    return tuple(map(float, values))


def _same(first: Sequence[float], second: Sequence[float]) -> bool:
    if len(first) != len(second):
        return True
    left, right = np.array(first), np.array(second)
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        # Training diverged for another reason.
        return True
    largest = max(np.abs(left).max(), np.abs(right).max())
    return bool(np.abs(left - right).max() <= _SAME_WEIGHTS * largest)


def _differ(ranks: Sequence[int], known: int, reference: int) -> str:
    verb = "differs" if len(ranks) == 1 else "differ"
    return f"{ranks_in_words(ranks)} of {known} ranks {verb} from rank {reference}"


def _rate_changes(log: Log) -> dict[int, float]:
    """Return the recorded rates, by the epoch that started with them."""
    rates = log.facts.get("learning_rates")
    pairs = map(_numbers, rates) if isinstance(rates, list) else ()
    return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2}


# -- Find ranks that train independently ----------------------------------------------------------
#
# Ranks that reduce gradients together stay within one step.
#
# A rank contributes to step i + 1 only after it has received the result of step i, and no rank
# receives the result of step i + 1 before all ranks have contributed. So on one clock, no rank
# completes step i + 1 before the last rank completes step i, however slow a rank is and however
# uneven the work.
#
# Hosts with different clocks show it, too. The times at which two hosts complete the same step
# differ by their clocks' offset, which is constant except for drift. If the difference grows by
# seconds, the hosts train independently.


class _Divergence(NamedTuple):
    """Two ranks of one clock at one moment, more steps apart than is possible in a joint training."""

    steps: int
    #: Rank and step of both.
    behind: tuple[int, int]
    ahead: tuple[int, int]
    #: All ranks of the clock, and the share of their steps that are too far apart.
    ranks: tuple[int, ...]
    share: float


def ranks_apart(records: Records) -> Iterator[Finding]:
    """Find ranks that train independently of each other."""
    reductions = records.reductions
    if len(reductions.ranks) < 2 or not len(reductions.steps):
        return
    completions = _Completions.of(reductions)
    divergences = [
        _on_one_clock(records, completions, clock) for clock in range(len(completions.ranks))
    ]
    most = max(filter(None, divergences), default=None)
    evidence = _in_words(records, most) if most else _between_hosts(reductions, completions)
    if evidence:
        yield Finding(
            "ranks_apart",
            "error",
            "Ranks train independently of each other",
            evidence,
            (
                Advice(
                    "Make sure that every rank wraps its optimizer or tape (hvd.DistributedOptimizer, "
                    "hvd.DistributedGradientTape, DistributedDataParallel), and that all ranks were "
                    "started as one job"
                ),
            ),
        )


@dataclass(frozen=True)
class _Completions:
    """When the first and the last rank of each clock had reduced each step; LATEST and NULL if none had.

    Matrices are clocks × steps.
    """

    #: The positions of each clock's ranks.
    ranks: list[Ints]
    earliest: Ints
    latest: Ints

    @classmethod
    def of(cls, reductions: ReductionTimes) -> _Completions:
        clocks = np.array(reductions.clocks)
        # In the order of ranks, so that blocks need not be copied.
        names = dict.fromkeys(reductions.clocks)
        ranks = [np.flatnonzero(clocks == name) for name in names]
        return cls(ranks, *reductions.cells.gathered(_first_and_last, reductions.column, ranks))


def _first_and_last(block: Block, column: str, ranks: list[Ints]) -> tuple[Ints, Ints]:
    """Kernel: return the first and the last time of each clock, clocks × steps."""
    at = block.of(column, np.concatenate(ranks)).T
    starts = np.cumsum([0, *map(len, ranks[:-1])], dtype=np.int64)
    first, last = (of_each(join, at, starts) for join in (np.minimum, np.maximum))
    if (first == NULL).any():
        first = of_each(np.minimum, _null_as_latest(at), starts)
    return first, last


def _on_one_clock(records: Records, completions: _Completions, clock: int) -> _Divergence | None:
    """Find the moment at which a clock's ranks were furthest apart; None if they never were."""
    ranks = completions.ranks[clock]
    if len(ranks) < 2:
        return None
    reductions = records.reductions
    columns = np.flatnonzero(completions.latest[clock] != NULL)
    latest = _never_set_back(completions.latest[clock, columns])
    earliest = _never_set_back(completions.earliest[clock, columns])
    # When the first rank had reduced this step or a later one.
    earliest = np.minimum.accumulate(earliest[::-1])[::-1]
    several = _several(records)
    apart = np.count_nonzero(latest[:-several] > earliest[several:])
    if apart < max(1, _FEWEST_APART * len(columns)):
        return None
    ahead = np.searchsorted(earliest, latest) - 1
    last = int(np.argmax(ahead - np.arange(len(columns))))
    first = int(ahead[last])
    behind, leading = reductions.cells.rows(reductions.column, columns[[last, first]])[:, ranks]
    steps = reductions.steps[columns]
    return _Divergence(
        int(steps[first] - steps[last]),
        (reductions.ranks[ranks[behind.argmax()]], int(steps[last])),
        (reductions.ranks[ranks[_null_as_latest(leading).argmin()]], int(steps[first])),
        tuple(reductions.ranks[index] for index in ranks),
        apart / len(columns),
    )


def _never_set_back(at: Ints) -> Ints:
    """Return ascending times without the jumps of a clock that was set back.

    However far ranks are apart, no rank reduces a step before the step before it.
    """
    steps = np.diff(at)
    back = steps < 0
    if not back.any():
        return at
    usual = int(np.median(steps[~back])) if not back.all() else 0
    return np.asarray(at + np.append(0, np.cumsum(np.where(back, usual - steps, 0))))


def _in_words(records: Records, divergence: _Divergence) -> str:
    done = "reduced" if records.reductions.measured else "completed"
    (behind, step), (ahead, later_step) = divergence.behind, divergence.ahead
    epochs = (_epoch_of(records, ahead, later_step) or 0) - (_epoch_of(records, behind, step) or 0)
    also = f" and {epochs:,} epochs" if epochs > 1 else ""
    return (
        f"When rank {behind} {done} step {step:,}, rank {ahead} had already {done} step "
        f"{later_step:,}: they are {divergence.steps:,} steps{also} apart. Ranks that reduce their "
        f"gradients together are never more than one step apart; {ranks_in_words(divergence.ranks)} "
        f"are at least {_several(records)} apart in {divergence.share:.0%} of steps."
    )


def _several(records: Records) -> int:
    """Return the number of steps from which ranks count as apart."""
    if records.reductions.measured:
        return _SEVERAL_STEPS
    # At the end of an epoch a host waits for its device to read the metrics.
    longest = int(records.epochs.steps.max(initial=0)) or _STEPS_AHEAD_OF_DEVICE
    return max(_SEVERAL_STEPS, min(_STEPS_AHEAD_OF_DEVICE, longest + 1))


def _between_hosts(reductions: ReductionTimes, completions: _Completions) -> str | None:
    """Describe two hosts that drifted apart by several steps; None if no two did."""
    clocks = np.flatnonzero((completions.earliest != LATEST).any(axis=1))
    at = completions.earliest[clocks]
    common = np.flatnonzero((at != LATEST).all(axis=0))
    if len(clocks) < 2 or len(common) <= _SMOOTHED_STEPS:
        return None
    sampled = common[evenly(len(common), _SAMPLED_STEPS)]
    at = np.array([_never_set_back(times) for times in at[:, sampled]])
    at -= at[:, :1]
    apart = ndimage.median_filter(at - at[0], size=(1, _SMOOTHED_STEPS), mode="nearest")
    change = np.diff(apart, axis=1)
    # A paused machine, or one with a clock that is set, jumps; independent hosts drift all the time.
    jumps = np.argpartition(np.abs(change), -_FORGIVEN_JUMPS, axis=1)[:, -_FORGIVEN_JUMPS:]
    np.put_along_axis(change, jumps, 0, axis=1)
    moved = np.cumsum(change, axis=1)
    beyond = np.abs(moved) / 1e9 - _TOLERANCE_SECONDS - _DRIFT * at[0, 1:] / 1e9
    host, place = np.unravel_index(beyond.argmax(), beyond.shape)
    steps = reductions.steps[sampled]
    step_ns = max(1.0, float(at[0, -1]) / max(1, int(steps[-1] - steps[0])))
    lag = abs(int(moved[host, place]))
    if beyond[host, place] <= 0 or lag < _SEVERAL_STEPS * step_ns:
        return None
    pair = clocks[[host, 0] if moved[host, place] > 0 else [0, host]]
    slow, fast = (
        ranks_in_words([reductions.ranks[index] for index in completions.ranks[clock]])
        for clock in pair
    )
    return (
        f"By step {steps[place + 1]:,}, {slow} had fallen {lag / 1e9:.1f} s behind "
        f"{fast} on another host, about {lag / step_ns:,.0f} steps. Ranks that reduce their gradients "
        "together are never more than one step apart, and no clocks drift by that much."
    )


def _null_as_latest(at: Ints) -> Ints:
    return np.where(at == NULL, LATEST, at)


def _epoch_of(records: Records, rank: int, step: int) -> int | None:
    columns = ("rank", "step", "epoch")
    parts = by_parts(records.run.steps, columns, _epochs_of, rank, step)
    epochs = list(chain.from_iterable(parts))
    return epochs[-1] if epochs else None


def _epochs_of(part: pa.Table, rank: int, step: int) -> list[int | None]:
    rows = part.filter(arrow.equal(part["step"], step))
    epochs: list[int | None] = rows.filter(arrow.equal(rows["rank"], rank))["epoch"].to_pylist()
    return epochs
