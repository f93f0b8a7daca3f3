"""Check that ranks that train one model agree: weights, learning rates, averaged metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stallscope.formatting.lists import clipped, ranks_in_words
from stallscope.run import Log

from ..advice.training import ONE_BROADCAST, averaged_metrics, broadcast_once
from ..settings.setup import AVERAGES, callbacks_of, number
from .finding import Finding
from .records import Records

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
        str(broadcast_once(records.setup)),
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
                str(averaged_metrics(records.setup)),
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
        str(averaged_metrics(records.setup)),
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
        str(ONE_BROADCAST),
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
