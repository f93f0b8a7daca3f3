"""What ranks that train one model must have in common: weights, rates, and what both follow from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stallscope.formatting.lists import clipped, ranks_in_words
from stallscope.run import Log

from ..advice import ONE_BROADCAST, averaged_metrics, broadcast_once
from ..settings.setup import AVERAGES, callbacks_of
from .finding import Finding
from .records import Records

# Of the numbers' own size: reducing in another order moves no weight by as much.
_SAME_WEIGHTS = 1e-3
_SAME_RATE = 1e-5
# Two fits with a broadcast each are a warm-up and a training; more are a loop.
_FITS_OF_A_LOOP = 3

_BROADCASTS = "horovod.BroadcastGlobalVariablesCallback"
# Callbacks of these packages are known not to average metrics over ranks.
_KNOWN = ("keras", "tf_keras", "tensorflow", "horovod", "stallscope")
# They decide how training goes on; other callbacks that go by a metric only decide what is kept.
_DECIDE = ("ReduceLROnPlateau", "EarlyStopping")


def weights_differ(records: Records) -> Iterator[Finding]:
    """Where gradients are reduced, weights that differ differed from the start."""
    samples = {rank: _sample(log) for rank, log in records.last_log.items()}
    known = {rank: sample for rank, sample in samples.items() if sample is not None}
    if len(known) < 2 or records.run.fact("gradients_reduced") is not True:
        return
    reference, own = next(iter(known.items()))
    # Other steps, or other weights, say nothing about each other.
    alike = {rank: one for rank, one in known.items() if one[:2] == own[:2]}
    apart = [rank for rank, one in alike.items() if not _same(one[2], own[2])]
    if not apart:
        return
    _, of, values = own
    theirs = alike[apart[0]][2]
    yield Finding(
        "weights_differ",
        "error",
        "Ranks train different models",
        f"After the first steps {clipped(of)} starts with {values[0]:.4g} on rank {reference} "
        f"and with {theirs[0]:.4g} on rank {apart[0]}; {ranks_in_words(apart)} of {len(alike)} ranks "
        f"{'differs' if len(apart) == 1 else 'differ'} from rank {reference}. Gradients are reduced, "
        f"so equal models stay equal.{_no_broadcast(records)}",
        str(broadcast_once(records.setup)),
    )


def learning_rates_differ(records: Records) -> Iterator[Finding]:
    """The first epoch that began with other rates on some ranks than on others."""
    changes = {rank: _rate_changes(log) for rank, log in records.last_log.items()}
    begun = _epochs_begun(records)
    for epoch in sorted(set().union(*changes.values())):
        rates = {
            rank: rate
            for rank, own in changes.items()
            if (rate := _rate_at(epoch, own, begun.get(rank, -1))) is not None
        }
        reference = min(rates)
        apart = [rank for rank, rate in rates.items() if not _same_rate(rate, rates[reference])]
        if apart:
            yield Finding(
                "learning_rates_differ",
                "error",
                "Ranks train with different learning rates",
                f"Epoch {epoch} began with a rate of {rates[reference]:g} on rank {reference} and of "
                f"{rates[apart[0]]:g} on rank {apart[0]}; {ranks_in_words(apart)} of {len(rates)} ranks "
                f"{'differs' if len(apart) == 1 else 'differ'} from rank {reference}. The same "
                "gradients then move their models apart.",
                str(averaged_metrics(records.setup)),
            )
            return


def metrics_not_averaged(records: Records) -> Iterator[Finding]:
    """Keras calls callbacks in their order: what is averaged after them comes too late."""
    if records.run.size < 2 or records.setup.library != "horovod":
        return
    found: dict[str, set[int]] = {}
    late = False
    for rank, log in records.last_log.items():
        callbacks = callbacks_of(log)
        names = [str(one.get("name")) for one in callbacks]
        for place, one in enumerate(callbacks):
            metric = one.get("monitor")
            if not isinstance(metric, str) or AVERAGES in names[:place]:
                continue
            # One of the user's own may average as well.
            if AVERAGES not in names and not all(map(_is_known, names[:place])):
                continue
            late = late or AVERAGES in names
            kind = names[place].rpartition(".")[2]
            found.setdefault(f"{kind} by {clipped(metric)}", set()).add(rank)
    if not found:
        return
    decides = any(text.startswith(_DECIDE) for text in found)
    told = "; ".join(f"{text} on {ranks_in_words(sorted(own))}" for text, own in found.items())
    where = "only after them" if late else "not among the callbacks"
    yield Finding(
        "metrics_not_averaged",
        "warning" if decides else "info",
        "Callbacks use one rank's own metrics",
        f"{told}: MetricAverageCallback is {where}, so each rank uses the loss of its own data. "
        + (
            "Rates change, and training stops, on one rank and not on another; a rank that stops alone "
            "leaves the others waiting."
            if decides
            else "The best checkpoint is then that rank's best."
        ),
        str(averaged_metrics(records.setup)),
    )


def broadcast_in_every_fit(records: Records) -> Iterator[Finding]:
    """A fit for each epoch, with a new callback that broadcasts: once is enough."""
    by_rank: dict[int, int] = {}
    for log in records.logs.values():
        made = log.facts.get("broadcasts")
        # A log that goes on in another file has the facts of its fit once more.
        if isinstance(made, int) and made > 0 and not log.continues:
            by_rank[log.rank] = by_rank.get(log.rank, 0) + 1
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
        "batch, and each traces its train step anew.",
        str(ONE_BROADCAST),
    )


def _sample(log: Log) -> tuple[int, str, tuple[float, ...]] | None:
    """After how many calls or steps, of what, and the numbers themselves."""
    fact = log.facts.get("weights")
    if not isinstance(fact, dict):
        return None
    after, of, values = fact.get("after"), fact.get("of"), fact.get("values")
    numbers = _numbers(values)
    if not isinstance(after, int) or not isinstance(of, str) or not numbers:
        return None
    return after, of, numbers


def _numbers(values: Any) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(isinstance(one, (int, float)) for one in values):
        return ()
    return tuple(map(float, values))


def _same(first: Sequence[float], second: Sequence[float]) -> bool:
    if len(first) != len(second):
        return True
    one, other = np.array(first), np.array(second)
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        # Training has gone wrong in another way.
        return True
    largest = max(np.abs(one).max(), np.abs(other).max())
    return bool(np.abs(one - other).max() <= _SAME_WEIGHTS * largest)


def _no_broadcast(records: Records) -> str:
    callbacks = [callbacks_of(log) for log in records.last_log.values()]
    if not all(callbacks):
        return ""
    names = {one.get("name") for own in callbacks for one in own}
    return "" if _BROADCASTS in names else " No callback broadcasts them."


def _epochs_begun(records: Records) -> dict[int, int]:
    """Per rank, the last epoch that it completed: it had begun."""
    last: dict[int, int] = {}
    for rank, epoch in zip(
        records.epochs.rank.tolist(), records.epochs.epoch.tolist(), strict=True
    ):
        last[rank] = max(last.get(rank, 0), epoch)
    return last


def _rate_changes(log: Log) -> dict[int, float]:
    """The recorded rates, by the epoch that started with them."""
    told = log.facts.get("learning_rates")
    pairs = map(_numbers, told) if isinstance(told, list) else ()
    return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2}


def _rate_at(epoch: int, changes: Mapping[int, float], begun: int) -> float | None:
    """The rate with which a rank began an epoch; None where it is not known to have begun it."""
    earlier = [one for one in changes if one <= epoch]
    if not earlier or (epoch > begun and epoch not in changes):
        return None
    return changes[max(earlier)]


def _same_rate(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME_RATE * max(abs(one), abs(other))


def _is_known(name: str) -> bool:
    return name.partition(".")[0] in _KNOWN
