"""MLflow's record of a run: metrics with the times at which they were logged, params, start and end.

A metric that is logged once per epoch marks the ends of epochs, as autologging of TensorFlow, Keras and
Lightning does it. The start of the first epoch is not logged: it is left out. A metric that is logged
once per step, or once per so many, gives a mean, and no rows: what lay between two values is not known.
A metric's name, the number of epochs among the params, or a validation metric with a value at every
step shows that its steps are epochs; otherwise that is reported as unknown.

MLflow's machine metrics (``system/…``) have no epochs: they become series.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

from stallscope.collector.mlflow.metrics import BEGINNING, no_logs_message
from stallscope.errors import UnreadableError
from stallscope.run import Problem

from .base import Parsed, Parser
from .epochs_only import Epoch, epochs_log, in_one_file
from .system_metrics import system_series
from .world_size import MOST_RANKS

KNOWN_FROM = "MLflow's metrics"

_LARGEST = 2**52
# No run is later, and nanoseconds since 1970 are int64.
_LATEST_MS = 2**42
_EPOCH_IN_NAME = re.compile(r"(^|[_/.\- ])epochs?($|[_/.\- ])", re.IGNORECASE)
_STEP_IN_NAME = re.compile(r"(^|[_/.\- ])(step|batch|iter|iteration)s?($|[_/.\- ])", re.IGNORECASE)
_VALIDATION = re.compile(r"^(val|valid|validation|test|eval)[_/.\-]", re.IGNORECASE)
# Of several metrics that would do, those that training logs itself.
_FIRST = ("loss", "train_loss", "training_loss", "train/loss")
# Lightning's logger and Hugging Face log under these names at which epoch a step was.
_EPOCH = "epoch"
# Autologging adds the best epoch's values again, after the epoch at which training was stopped.
_STOPPED, _RESTORED = "stopped_epoch", "restored_epoch"
# More fits than that are the values of several processes, whose steps go back all the time.
_MOST_FITS = 4
_FEWEST_OF_A_FIT = 4

_PARAMS: dict[str, tuple[str, ...]] = {
    "model": ("model", "model_name", "architecture", "arch"),
    "optimizer": ("opt_name", "optimizer_name", "optimizer"),
    "learning_rate": ("opt_learning_rate", "optimizer_learning_rate", "learning_rate", "lr"),
    "batch_size": ("batch_size", "train_batch_size", "per_device_train_batch_size"),
    "size": ("world_size", "hvd_size", "num_ranks"),
    "epochs": ("epochs", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs"),
}

SeriesKind = Literal["epoch", "step"]


class MlflowMetricsParser(Parser):
    name: ClassVar[str] = "mlflow-metrics"
    title: ClassVar[str] = "metrics of MLflow runs"
    suffix: ClassVar[str] = ".mlflow.json"
    has_steps: ClassVar[bool] = False

    def recognises(self, file_name: str, head: bytes) -> bool:
        return head.startswith(BEGINNING)

    def parse(self, path: str, data: bytes) -> Parsed:
        content = _content(path, data)
        params = _texts(content.get("params"))
        metrics = _metrics(content.get("metrics"))
        begin = _moment(content.get("start_ms"))
        facts = _facts(content, params)
        found = _found(metrics, params, facts)
        if begin is not None:
            facts["anchor"] = {"monotonic_ns": 0, "wall_ns": begin * 10**6}
        zero = begin if begin is not None else min((fit[0].ms for fit in found.fits), default=0)
        ended = _moment(content.get("end_ms"))
        if begin is not None and ended is not None:
            facts["whole_job"] = True
        problems = []
        if found.facts is None:
            problems.append(Problem(path, _nothing(content)))
        series, missing = system_series(path, content)
        logs = [
            epochs_log(
                path,
                run_id=str(content.get("run_id")),
                part=part,
                facts={**facts, **(found.facts or {}), **first_epoch(fit, found.base)},
                epochs=epochs_of(fit, found.base, zero),
                ended=content.get("status") == "FINISHED",
                end=None if ended is None or begin is None else max(0, ended - zero) * 10**6,
                problems=() if part else problems,
            )
            for part, fit in enumerate(found.fits or ((),))
        ]
        whole = in_one_file(logs, len(data))
        return replace(whole, series=series, series_problems=missing)


class Value(NamedTuple):
    """A value of a metric, and when it was logged."""

    ms: int
    step: int
    value: float | None


Values = Sequence[Value]


class MetricTimes(NamedTuple):
    """Times in metrics."""

    #: What is known and how well; None where nothing is.
    facts: dict[str, Any] | None
    #: Per fit, the last value of every epoch.
    fits: Sequence[Values] = ()
    #: The number of the first epoch.
    base: int = 0


def _content(path: str, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise UnreadableError(f"{path}: not JSON, or torn") from None
    if not isinstance(content, dict) or not isinstance(content.get("run_id"), str):
        raise UnreadableError(f"{path}: this is not what MLflow knows of a run")
    return content


def _nothing(content: Mapping[str, Any]) -> str:
    names = content.get("metric_names")
    return no_logs_message(
        str(content.get("where")),
        _whole(content.get("artifacts")) or 0,
        _whole(content.get("possible_logs")) or 0,
        [str(name) for name in names] if isinstance(names, list) else [],
        _texts(content.get("params")),
    )


def times_in(metrics: Mapping[str, Values], facts: dict[str, Any]) -> MetricTimes:
    """Find epochs and steps in values with their times; ``facts`` gets what else they contain.

    Args:
        metrics: by name, in the order of their times; two different steps at least.
    """
    return _found(metrics, {}, facts)


def _found(
    metrics: Mapping[str, Values], params: Mapping[str, str], facts: dict[str, Any]
) -> MetricTimes:
    """Find epochs in metrics, and the mean time per step between values."""
    logged = _lightning(metrics.get(_EPOCH, ()))
    if logged is not None:
        epochs_ended, facts["steps_per_epoch"] = logged
        mean = _mean(metrics[_EPOCH])
        return _marked([epochs_ended], 0, {} if mean is None else _step_facts(*mean))
    validated = Counter(_steps(own) for name, own in metrics.items() if _VALIDATION.match(name))
    kinds = {
        name: _kind(name, values, validated, params)
        for name, values in metrics.items()
        if name != _EPOCH
    }
    epochs = _choice(name for name, kind in kinds.items() if kind == "epoch")
    steps = _choice(name for name, kind in kinds.items() if kind == "step")
    mean = None if steps is None else _mean(metrics[steps])
    step_facts = {} if mean is None else _step_facts(*mean)
    if epochs is not None:
        fits = _fits(metrics[epochs])
        return _marked(fits, min(fit[0].step for fit in fits), step_facts)
    if mean is not None:
        return MetricTimes({**step_facts, **_about(f"a mean over {mean[1]:,} steps")})
    unknown = _choice(name for name, kind in kinds.items() if kind is None)
    mean = None if unknown is None else _mean(metrics[unknown])
    if mean is None:
        return MetricTimes(None)
    precision = (
        f"the mean time between steps of the metric {unknown}; whether they are epochs or steps of "
        "training is not known"
    )
    return MetricTimes({"metric_step_ms": mean[0], **_about(precision)})


def _marked(fits: Sequence[Values], base: int, step_facts: Mapping[str, Any]) -> MetricTimes:
    facts = _about("epochs, to the millisecond") | {
        "epoch_precision_ms": 1.0,
        "clock": "when metrics were logged; when the first epoch began is not known",
    }
    return MetricTimes({**facts, **step_facts}, fits, 1 if base == 1 else 0)


def _about(precision: str) -> dict[str, Any]:
    return {"known_from": KNOWN_FROM, "precision": precision}


def _step_facts(step_ms: float, steps: int) -> dict[str, Any]:
    return {"step_ms": step_ms, "step_precision_ms": 1.0 / steps}


def _lightning(values: Values) -> tuple[list[Value], int] | None:
    """Return the last value of every epoch that ended, and steps per epoch, if epochs are logged
    per step.

    Only where every epoch has as many steps: otherwise values were not logged at their ends.
    """
    ends: dict[int, Value] = {}
    for one in values:
        if one.value is None or one.value != int(one.value) or one.value < 0:
            return None
        ends[int(one.value)] = one
    numbers = sorted(ends)
    lengths = [ends[number].step - ends[before].step for before, number in pairwise(numbers)]
    if len(numbers) > 2 and 0 < lengths[-1] < lengths[-2]:
        # Still in this one when the last value was logged.
        numbers.pop()
        lengths.pop()
    if not lengths or len(set(lengths)) > 1 or lengths[0] <= 0:
        return None
    return [ends[number]._replace(step=number) for number in numbers], lengths[0]


def _kind(
    name: str,
    values: Values,
    validated: Mapping[frozenset[int], int],
    params: Mapping[str, str],
) -> SeriesKind | None:
    """Return whether a metric's steps are epochs or steps; None if unknown.

    Args:
        validated: by the steps at which they have values, how many metrics of validation there are.
    """
    if _STEP_IN_NAME.search(name):
        return "step"
    steps = _steps(values)
    first, last = values[0].step, max(steps)
    in_a_row = last - min(steps) + 1 == len(steps)
    if _EPOCH_IN_NAME.search(name):
        return "epoch" if in_a_row else None
    epochs = _number(_param(params, "epochs"))
    if epochs is not None:
        initial = _number(params.get("initial_epoch"))
        if last > epochs or (initial is not None and first != initial):
            return "step"
        return "epoch" if in_a_row and first in (0, 1, initial) else None
    twins = validated.get(steps, 0) - (_VALIDATION.match(name) is not None)
    return "epoch" if twins and in_a_row else None


def _steps(values: Values) -> frozenset[int]:
    return frozenset(one.step for one in values)


def _choice(names: Iterable[str]) -> str | None:
    """Choose the metric of training among several, otherwise the first one."""
    found = sorted(names)
    own = [name for name in found if not _VALIDATION.match(name)] or found
    return next((name for name in _FIRST if name in own), own[0] if own else None)


def _fits(values: Values) -> list[list[Value]]:
    """Return the last value of every step, split where steps start again."""
    fits: list[list[Value]] = []
    for one in values:
        if not fits or one.step < fits[-1][-1].step:
            fits.append([])
        if fits[-1] and fits[-1][-1].step == one.step:
            fits[-1].pop()
        fits[-1].append(one)
    return fits


def _mean(values: Values) -> tuple[float, int] | None:
    """Return milliseconds per step, and over how many steps; None if unknown."""
    time = steps = 0
    for fit in _fits(values):
        time += fit[-1].ms - fit[0].ms
        steps += fit[-1].step - fit[0].step
    return (time / steps, steps) if steps and time > 0 else None


def epochs_of(fit: Values, base: int, zero: int) -> list[Epoch]:
    """Return the epochs with known start and end: those that follow another one."""
    return [
        Epoch(one.step - base, (before.ms - zero) * 10**6, (one.ms - zero) * 10**6)
        for before, one in pairwise(fit)
        if one.step == before.step + 1 and 0 <= one.step - base < 2**31
    ]


def first_epoch(fit: Values, base: int) -> dict[str, int]:
    """Return the number of the first epoch as a fact, if it is known."""
    return {"first_epoch": fit[0].step - base} if fit else {}


def _facts(content: Mapping[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """Return facts about the run from known names of params."""
    facts: dict[str, Any] = {
        "run_name": content.get("run_name"),
        "framework": _framework(params),
        "model": _param(params, "model"),
        "optimizer": _param(params, "optimizer"),
        "learning_rate": _number(_param(params, "learning_rate")),
        "batch_size": _count(_param(params, "batch_size")),
        "size": _count(_param(params, "size"), MOST_RANKS),
        "steps_per_epoch": _steps_per_epoch(params, _object(content.get("training_data"))),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _framework(params: Mapping[str, str]) -> str | None:
    """Recognise the autologging that has written the params."""
    if "opt_name" in params:
        return "tensorflow"
    if "optimizer_learning_rate" in params:
        return "keras"
    return "pytorch" if {"optimizer_name", "epochs"} <= set(params) else None


def _steps_per_epoch(params: Mapping[str, str], data: Mapping[str, Any]) -> int | None:
    """Return steps per epoch as Keras counts them: given, or from the logged training data."""
    given = _count(params.get("steps_per_epoch"))
    if given is not None:
        return given
    batches = _whole(data.get("features_cardinality"))
    if batches is not None:
        return batches if batches > 0 else None
    shape, batch = data.get("features_shape"), _count(_param(params, "batch_size"))
    rows = _whole(shape[0]) if isinstance(shape, list) and shape else None
    if rows is None or batch is None or rows <= 0:
        return None
    held_back = _number(params.get("validation_split")) or 0.0
    training = math.floor(rows * (1 - held_back)) if 0 <= held_back < 1 else rows
    return -(-training // batch) or None


def _metrics(content: object) -> dict[str, Values]:
    """Return metrics with values at two different steps at least, sorted by time."""
    histories = {name: _values(values) for name, values in _object(content).items()}
    stopped = histories.get(_STOPPED)
    last = int(stopped[-1].value or 0) if stopped and _RESTORED in histories else None
    found: dict[str, Values] = {}
    for name, values in histories.items():
        kept = [one for one in values if last is None or one.step <= last]
        if len({one.step for one in kept}) > 1 and _are_distinct(kept):
            found[name] = kept
    return found


def _values(content: object) -> list[Value]:
    values = [
        Value(one[0], one[1], _number(one[2]))
        for one in (content if isinstance(content, list) else ())
        if isinstance(one, list)
        and len(one) == 3
        and _moment(one[0]) is not None
        and _whole(one[1]) is not None
    ]
    return sorted(values, key=lambda one: one[:2])


def _are_distinct(values: Values) -> bool:
    """Whether these are the values of one process after another, not of several at once."""
    fits = _fits(values)
    return len(fits) <= _MOST_FITS or len(values) >= _FEWEST_OF_A_FIT * len(fits)


def _param(params: Mapping[str, str], what: str) -> str | None:
    found = (params[name] for name in _PARAMS[what] if params.get(name) not in (None, "None", ""))
    return next(found, None)


def _object(content: object) -> dict[str, Any]:
    return content if isinstance(content, dict) else {}


def _texts(content: object) -> dict[str, str]:
    return {name: str(value) for name, value in _object(content).items()}


def _whole(content: object) -> int | None:
    usable = isinstance(content, int) and not isinstance(content, bool) and abs(content) < _LARGEST
    return content if usable and isinstance(content, int) else None


def _moment(content: object) -> int | None:
    """Return milliseconds since 1970, None if invalid."""
    found = _whole(content)
    return found if found is not None and 0 <= found < _LATEST_MS else None


def _number(content: object) -> float | None:
    try:
        number = float(content) if isinstance(content, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < _LARGEST else None


def _count(content: str | None, most: int = _LARGEST) -> int | None:
    """Return a number of at least one, None otherwise."""
    number = _number(content)
    usable = number is not None and 1 <= number <= most and number == int(number)
    return int(number) if number is not None and usable else None
