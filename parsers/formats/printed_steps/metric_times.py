"""Find the times of epochs and steps in metrics that were logged with their steps and times.

A metric that is logged once per epoch marks the ends of epochs. A metric that is logged every step or
every few steps only gives a mean step time: the values do not show pauses between steps. A metric's
name, the planned number of epochs, or a validation metric with values at the same steps shows that its
steps are epochs; otherwise their meaning is unknown.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.types import Floats, Ints
from stallscope.run import Problem

from ...base import Parsed
from ...epochs_only import Epoch
from ...lines.line_blocks import Column
from .evidence import Evidence, evidence_in
from .figures import EVALUATES, NO_FIGURE
from .rank_logs import logs_of
from .rows import TELL, Records, without_stamps
from .trainers import Meaning
from .vocabulary import word_of

_EPOCH_IN_NAME = re.compile(r"(^|[_/.\- ])epochs?($|[_/.\- ])", re.IGNORECASE)
_STEP_IN_NAME = re.compile(r"(^|[_/.\- ])(step|batch|iter|iteration)s?($|[_/.\- ])", re.IGNORECASE)
_VALIDATION = re.compile(r"^(val|valid|validation|test|eval)[_/.\-]", re.IGNORECASE)
# Metrics of the training itself are preferred.
_FIRST = ("loss", "train_loss", "training_loss", "train/loss")
# Lightning's logger and Hugging Face log the epoch of a step under this name.
_EPOCH = "epoch"
# More fits show that several processes log at once: their steps go back all the time.
_MOST_FITS = 4
_FEWEST_OF_A_FIT = 4
_MOST_METRICS, _MOST_STEPS = 240, 2.0**52

SeriesKind = Literal["epoch", "step"]


class Value(NamedTuple):
    """A value of a metric, and when it was logged."""

    ms: int
    step: int
    value: float | None


Values = Sequence[Value]


class PlannedEpochs(NamedTuple):
    """The epochs that a training was to have; None if unknown."""

    #: The number of the last one.
    last: float | None = None
    #: The number of the first one.
    initial: float | None = None


class MetricTimes(NamedTuple):
    """Times in metrics."""

    #: What is known, and how well; None if nothing is.
    facts: dict[str, Any] | None
    #: Per fit, the last value of every epoch.
    fits: Sequence[Values] = ()
    #: The number of the first epoch.
    base: int = 0

    def by_fit(self, zero: int) -> Iterator[tuple[dict[str, Any], list[Epoch]]]:
        """Yield the facts and epochs of each fit; of one without epochs if no metric has any.

        Args:
            zero: when the log's clock is 0, milliseconds since 1970.
        """
        for fit in self.fits or ((),):
            first = {"first_epoch": fit[0].step - self.base} if fit else {}
            yield {**(self.facts or {}), **first}, _epochs(fit, self.base, zero)


_UNKNOWN = PlannedEpochs()


def times_in(metrics: Mapping[str, Values], planned: PlannedEpochs = _UNKNOWN) -> MetricTimes:
    """Find epochs in metrics, and the mean time per step between values.

    Args:
        metrics: values by name, in the order of their times, at two different steps at least.
        planned: the epochs that the training was to have.
    """
    logged = _lightning(metrics.get(_EPOCH, ()))
    if logged is not None:
        epochs_ended, steps_per_epoch = logged
        mean = _mean(metrics[_EPOCH])
        step_facts = {} if mean is None else _step_facts(*mean)
        return _marked([epochs_ended], 0, {"steps_per_epoch": steps_per_epoch, **step_facts})
    validated = Counter(
        _steps(values) for name, values in metrics.items() if _VALIDATION.match(name)
    )
    kinds = {
        name: _kind(name, values, validated, planned)
        for name, values in metrics.items()
        if name != _EPOCH
    }
    epochs, steps, unknown = (
        _choice(name for name, kind in kinds.items() if kind == wanted)
        for wanted in ("epoch", "step", None)
    )
    mean = None if steps is None else _mean(metrics[steps])
    step_facts = {} if mean is None else _step_facts(*mean)
    if epochs is not None:
        fits = _fits(metrics[epochs])
        return _marked(fits, min(fit[0].step for fit in fits), step_facts)
    if mean is not None:
        return MetricTimes({**step_facts, "precision": f"a mean over {mean[1]:,} steps"})
    mean = None if unknown is None else _mean(metrics[unknown])
    if mean is None:
        return MetricTimes(None)
    precision = (
        f"the mean time between steps of the metric {unknown}; whether they are epochs or steps of "
        "training is not known"
    )
    return MetricTimes({"metric_step_ms": mean[0], "precision": precision})


def _marked(fits: Sequence[Values], base: int, step_facts: Mapping[str, Any]) -> MetricTimes:
    facts = {
        "precision": "epochs, to the millisecond",
        "epoch_precision_ms": 1.0,
        "clock": "when metrics were logged; when the first epoch began is not known",
    }
    return MetricTimes({**facts, **step_facts}, fits, 1 if base == 1 else 0)


def _step_facts(step_ms: float, steps: int) -> dict[str, Any]:
    return {"step_ms": step_ms, "step_precision_ms": 1.0 / steps}


def _lightning(values: Values) -> tuple[list[Value], int] | None:
    """Return the last value of every epoch that ended, and steps per epoch, if epochs are logged
    per step.

    None unless every epoch has as many steps: otherwise values were not logged at the ends of epochs.
    """
    ends: dict[int, Value] = {}
    for value in values:
        if value.value is None or value.value != int(value.value) or value.value < 0:
            return None
        ends[int(value.value)] = value
    numbers = sorted(ends)
    lengths = [ends[number].step - ends[before].step for before, number in pairwise(numbers)]
    if len(numbers) > 2 and 0 < lengths[-1] < lengths[-2]:
        # The last epoch had not ended when its last value was logged.
        numbers.pop()
        lengths.pop()
    if not lengths or len(set(lengths)) > 1 or lengths[0] <= 0:
        return None
    return [ends[number]._replace(step=number) for number in numbers], lengths[0]


def _kind(
    name: str,
    values: Values,
    validated: Mapping[frozenset[int], int],
    planned: PlannedEpochs,
) -> SeriesKind | None:
    """Return whether a metric's steps are epochs or steps; None if unknown.

    Args:
        validated: the number of validation metrics by the steps at which they have values.
    """
    if _STEP_IN_NAME.search(name):
        return "step"
    steps = _steps(values)
    first, last = values[0].step, max(steps)
    in_a_row = last - min(steps) + 1 == len(steps)
    if _EPOCH_IN_NAME.search(name):
        return "epoch" if in_a_row else None
    if planned.last is not None:
        if last > planned.last or (planned.initial is not None and first != planned.initial):
            return "step"
        return "epoch" if in_a_row and first in (0, 1, planned.initial) else None
    twins = validated.get(steps, 0) - (_VALIDATION.match(name) is not None)
    return "epoch" if twins and in_a_row else None


def _steps(values: Values) -> frozenset[int]:
    return frozenset(value.step for value in values)


def _choice(names: Iterable[str]) -> str | None:
    """Choose the metric of training among several, otherwise the first one."""
    ordered = sorted(names)
    training = [name for name in ordered if not _VALIDATION.match(name)] or ordered
    return next((name for name in _FIRST if name in training), training[0] if training else None)


def _fits(values: Values) -> list[list[Value]]:
    """Return the last value of every step, split where steps start again."""
    fits: list[list[Value]] = []
    for value in values:
        if not fits or value.step < fits[-1][-1].step:
            fits.append([])
        if fits[-1] and fits[-1][-1].step == value.step:
            fits[-1].pop()
        fits[-1].append(value)
    return fits


def _mean(values: Values) -> tuple[float, int] | None:
    """Return milliseconds per step, and over how many steps; None if unknown."""
    time = steps = 0
    for fit in _fits(values):
        time += fit[-1].ms - fit[0].ms
        steps += fit[-1].step - fit[0].step
    return (time / steps, steps) if steps and time > 0 else None


def _epochs(fit: Values, base: int, zero: int) -> list[Epoch]:
    """Return the epochs with known start and end: those that follow another one."""
    return [
        Epoch(after.step - base, (before.ms - zero) * 10**6, (after.ms - zero) * 10**6)
        for before, after in pairwise(fit)
        if after.step == before.step + 1 and 0 <= after.step - base < 2**31
    ]


def are_of_one_process(values: Values) -> bool:
    """Whether one process after another has logged these values, not several at once."""
    fits = _fits(values)
    return len(fits) <= _MOST_FITS or len(values) >= _FEWEST_OF_A_FIT * len(fits)


# -- metrics that are logged one by one ------------------------------------------------------------


def pivoted(records: Records, keys: Sequence[str | None]) -> Records | None:
    """Make a record of each step from records with one named value each."""
    figures = records.figures
    counters = [name for name in figures if word_of(name).quantity == "step"]
    if not counters:
        return records
    series: dict[str, tuple[Ints, Floats, dict[str, Column]]] = {}
    names = np.array([key or "" for key in keys])
    usable = np.abs(figures[counters[0]]) < _MOST_STEPS
    for name in list(dict.fromkeys(names.tolist()))[:_MOST_METRICS]:
        at = np.flatnonzero((names == name) & usable)
        stamps = {field: column[at] for field, column in records.stamps.items()}
        clocks = [field for field in figures if word_of(field).quantity in ("stamp", "time")]
        clock = {field: figures[field][at] for field in clocks}
        series[name] = (
            figures[counters[0]][at].astype(np.int64),
            figures["value"][at],
            {**stamps, **clock},
        )
    return records_of_series(series)


def records_of_series(
    series: Mapping[str, tuple[Ints, Floats, Mapping[str, Column]]],
) -> Records | None:
    """Make a record of each step of the metric of training that has most values.

    Args:
        series: of each metric the steps, the values, and the timestamps and clocks of its values.
    """
    usable = {
        name: values for name, values in series.items() if name and not EVALUATES.search(name)
    }
    if not usable:
        return None
    main = max(usable, key=lambda name: (len(usable[name][0]), word_of(name).quantity in TELL))
    steps, _, columns = usable[main]
    figures: dict[str, Floats] = {"step": steps.astype(np.float64)}
    stamps = without_stamps(len(steps))
    stamps |= {name: column for name, column in columns.items() if name in stamps}
    figures |= {name: column for name, column in columns.items() if name not in stamps}
    for name, (at_steps, values, _) in usable.items():
        if word_of(name).quantity not in NO_FIGURE:
            figures[name] = _at(steps, at_steps, values)
    return Records(figures, frozenset(), stamps, frozenset(series), alone=True)


def _at(steps: Ints, at_steps: Ints, values: Floats) -> Floats:
    """Return the last values at steps, NaN where there is none."""
    if np.array_equal(steps, at_steps):
        return values
    order = np.argsort(at_steps, kind="stable")
    place = np.searchsorted(at_steps[order], steps, side="right") - 1
    exists = (place >= 0) & (at_steps[order][np.maximum(place, 0)] == steps)
    return np.where(exists, values[order][np.maximum(place, 0)], np.nan)


# -- times of steps among metrics ------------------------------------------------------------------

# Facts of a log of windows that are those of any log with them.
_OF_WINDOWS = (
    *("precision", "windows", "window_precision_ms", "step_ms", "step_precision_ms", "data_ms"),
    *("rate_samples", "rate_of", "rate_why", "samples_per_step", "step_numbers"),
)


def with_step_times(
    log: Parsed, times: MetricTimes, metrics: Mapping[str, Values], zero: int
) -> Parsed:
    """Add the times of steps that metrics have, if they agree with the times of logging.

    Args:
        log: the only log of a training.
        times: what is known of the metrics' steps; those that are epochs have no times of steps.
        metrics: values by name, in the order of their times.
        zero: when the log's clock is 0, milliseconds since 1970.
    """
    are_epochs = bool(times.fits) and "steps_per_epoch" not in (times.facts or {})
    evidence = None if are_epochs else _evidence_in(metrics)
    if evidence is None:
        return log
    meaning = Meaning("", evidence.value)
    timed, *_ = logs_of(log.log.path, b"", evidence.columns, meaning)
    began = timed.log.facts.get("anchor", {}).get("wall_ns", zero * 10**6)
    windows = timed.intervals.filter(arrow.equal(timed.intervals["kind"], "window"))
    if not windows.num_rows:
        return log
    columns = {
        "rank": arrow.array(np.full(windows.num_rows, log.log.rank, np.int32)),
        **{
            name: arrow.array(arrow.numbers(windows[name]) + (began - zero * 10**6))
            for name in ("begin", "end")
        },
    }
    for name, column in columns.items():
        at = windows.schema.get_field_index(name)
        windows = windows.set_column(at, windows.schema.field(at), column)
    facts = {name: timed.log.facts[name] for name in _OF_WINDOWS if name in timed.log.facts}
    facts["confirmed"] = ", ".join(evidence.checks)
    notes = tuple(Problem(log.log.path, note) for note in evidence.notes)
    return replace(
        log,
        log=replace(log.log, facts={**log.log.facts, **facts}),
        intervals=pa.concat_tables([log.intervals, windows]),
        problems=(*log.problems, *timed.problems, *notes),
    )


def _evidence_in(metrics: Mapping[str, Values]) -> Evidence | None:
    """Return the evidence of metrics with times or rates of steps, None without any that agree."""
    series = {}
    for name, values in metrics.items():
        if _EPOCH_IN_NAME.search(name) and name != _EPOCH:
            continue
        count = len(values)
        stamps = without_stamps(count)
        stamps["ns"] = np.array([value.ms for value in values], np.int64) * 10**6
        stamps |= dict.fromkeys(("timed", "zone_known"), np.ones(count, bool))
        stamps["resolution_ns"] = np.full(count, 10**6)
        steps = np.array([value.step for value in values], np.int64)
        numbers = [math.nan if value.value is None else value.value for value in values]
        series[name] = steps, np.array(numbers, np.float64), stamps
    records = records_of_series(series)
    if records is None or len(records.figures) < 2:
        return None
    for rows in records.kinds():
        evidence = evidence_in(rows)
        if isinstance(evidence, Evidence) and any("agree" in check for check in evidence.checks):
            return evidence
    return None
