"""MLflow's record of a run: metrics with the times at which they were logged, params, start and end.

Autologging of TensorFlow, Keras and Lightning logs metrics once per epoch (``metric_times``). The start
of the first epoch is not logged: the epoch is left out. MLflow's machine metrics (``system/…``) become
series.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from stallscope.arrays.types import Floats, Ints
from stallscope.collector.mlflow.metrics import BEGINNING, no_logs_message
from stallscope.errors import UnreadableError
from stallscope.formatting.lists import counted
from stallscope.run import Problem, Series

from ..base import MOST_RANKS, Parsed, Parser
from ..epochs_only import epochs_log, in_one_file
from .printed_steps.metric_times import (
    PlannedEpochs,
    Value,
    Values,
    are_of_one_process,
    times_in,
    with_step_times,
)

KNOWN_FROM = "MLflow's metrics"
_LARGEST = 2**52
# No run is later, and nanoseconds since 1970 are int64.
_LATEST_MS = 2**42
# After early stopping, autologging logs the best epoch's values again.
_STOPPED, _RESTORED = "stopped_epoch", "restored_epoch"
_PARAMS: dict[str, tuple[str, ...]] = {
    "model": ("model", "model_name", "architecture", "arch"),
    "optimizer": ("opt_name", "optimizer_name", "optimizer"),
    "learning_rate": ("opt_learning_rate", "optimizer_learning_rate", "learning_rate", "lr"),
    "batch_size": ("batch_size", "train_batch_size", "per_device_train_batch_size"),
    "size": ("world_size", "hvd_size", "num_ranks"),
    "epochs": ("epochs", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs"),
}

_NAME = re.compile(r"system/(?:(.+)/)?([^/]+)", re.DOTALL)
# Names of nodes that stand for ranks and not for machines.
_RANK = re.compile(r"rank[ ._-]?([0-9]{1,6})", re.IGNORECASE)
_UNITS = {"percentage": "%", "megabytes": "MB", "gigabytes": "GB", "watts": "W"}
# Counters, and the unit of their growth per second.
_COUNTERS = {"network_receive": "MB/s", "network_transmit": "MB/s"}
# A process that restarts counts from 0 again. If more than a quarter of the values fall, several
# processes count under one name.
_MOST_RESTARTS = 1 / 4
_LARGEST_VALUE = 2.0**52
Arrays = tuple[Ints, Floats]


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
        planned = PlannedEpochs(
            _number(_param(params, "epochs")), _number(params.get("initial_epoch"))
        )
        times = times_in(metrics, planned)
        if begin is not None:
            facts["anchor"] = {"monotonic_ns": 0, "wall_ns": begin * 10**6}
        zero = begin if begin is not None else min((fit[0].ms for fit in times.fits), default=0)
        ended = _moment(content.get("end_ms"))
        if begin is not None and ended is not None:
            facts["whole_job"] = True
        series, missing = system_series(path, content)
        logs = [
            epochs_log(
                path,
                run_id=str(content.get("run_id")),
                part=part,
                facts={**facts, **known},
                epochs=epochs,
                ended=content.get("status") == "FINISHED",
                end=None if ended is None or begin is None else max(0, ended - zero) * 10**6,
            )
            for part, (known, epochs) in enumerate(times.by_fit(zero))
        ]
        if len(logs) == 1:
            logs = [with_step_times(logs[0], times, metrics, zero)]
        if times.facts is not None or "windows" in logs[0].log.facts:
            logs = [_known(log) for log in logs]
        else:
            logs[0] = replace(logs[0], problems=(Problem(path, _nothing(content)),))
        whole = in_one_file(logs, len(data))
        return replace(whole, series=series, series_problems=missing)


def _known(log: Parsed) -> Parsed:
    return replace(log, log=replace(log.log, facts={**log.log.facts, "known_from": KNOWN_FROM}))


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
    """Return metrics with values at two or more steps, sorted by time."""
    histories = {name: _values(values) for name, values in _object(content).items()}
    stopped = histories.get(_STOPPED)
    last = int(stopped[-1].value or 0) if stopped and _RESTORED in histories else None
    metrics: dict[str, Values] = {}
    for name, values in histories.items():
        kept = [value for value in values if last is None or value.step <= last]
        if len({value.step for value in kept}) > 1 and are_of_one_process(kept):
            metrics[name] = kept
    return metrics


def _values(content: object) -> list[Value]:
    values = [
        Value(row[0], row[1], _number(row[2]))
        for row in (content if isinstance(content, list) else ())
        if isinstance(row, list)
        and len(row) == 3
        and _moment(row[0]) is not None
        and _whole(row[1]) is not None
    ]
    return sorted(values, key=lambda value: value[:2])


def _param(params: Mapping[str, str], what: str) -> str | None:
    values = (params[name] for name in _PARAMS[what] if params.get(name) not in (None, "None", ""))
    return next(values, None)


def _object(content: object) -> dict[str, Any]:
    return content if isinstance(content, dict) else {}


def _texts(content: object) -> dict[str, str]:
    return {name: str(value) for name, value in _object(content).items()}


def _whole(content: object) -> int | None:
    usable = isinstance(content, int) and not isinstance(content, bool) and abs(content) < _LARGEST
    return content if usable and isinstance(content, int) else None


def _moment(content: object) -> int | None:
    """Return milliseconds since 1970, None if invalid."""
    ms = _whole(content)
    return ms if ms is not None and 0 <= ms < _LATEST_MS else None


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


# -- Make series of MLflow's machine metrics: ``system/NODE/gpu_0_utilization_percentage`` --------
#
# ``network_receive_megabytes`` and ``network_transmit_megabytes`` count from the first log of the
# process. They become rates, in MB/s from each value to the next one.


def system_series(
    path: str, content: Mapping[str, Any]
) -> tuple[tuple[Series, ...], tuple[Problem, ...]]:
    """Return the machine metrics that MLflow has logged, and problems with them.

    Args:
        path: the file.
        content: its content.
    """
    metrics = content.get("system_metrics")
    all_series, damaged = [], 0
    for name, history in metrics.items() if isinstance(metrics, dict) else ():
        series = _series(path, name, history)
        if series is None:
            damaged += 1
        elif len(series.value):
            all_series.append(series)
    problems = []
    if damaged:
        problems.append(Problem(path, f"{counted(damaged, 'metric')} of machines cannot be read"))
    trouble = content.get("system_metrics_trouble")
    if isinstance(trouble, str):
        problems.append(Problem(path, f"metrics of machines were not read: {trouble}"))
    left_out = content.get("system_metrics_left_out")
    if isinstance(left_out, int) and left_out > 0:
        what = (
            f"MLflow has {counted(left_out, 'more metric')} of machines: only the most useful ones were "
            "requested"
        )
        problems.append(Problem(path, what))
    return tuple(all_series), tuple(problems)


def _series(path: str, name: str, history: object) -> Series | None:
    """Make a series of a metric, None if it is invalid."""
    parts, arrays = _NAME.fullmatch(name), _arrays(history)
    if parts is None or arrays is None:
        return None
    node = parts[1]
    rank = _RANK.fullmatch(node or "")
    what, _, last = parts[2].rpartition("_")
    known = what and last in _UNITS
    unit = _UNITS[last] if known else ""
    if unit == "MB" and what in _COUNTERS:
        unit, arrays = _COUNTERS[what], _per_second(*arrays)
        if arrays is None:
            return None
    return Series(
        name=what if known else parts[2],
        unit=unit,
        node=node,
        rank=None if rank is None else int(rank[1]),
        where=path,
        wall_ns=arrays[0],
        value=arrays[1],
    )


def _per_second(wall_ns: Ints, count: Floats) -> Arrays | None:
    """Return the growth per second of a counter at each value after the first, except at restarts.

    None if several processes count at once.
    """
    # Of several values at one time the last one counts.
    last = np.append(np.diff(wall_ns) > 0, True)[: len(wall_ns)]
    wall_ns, count = wall_ns[last], count[last]
    grown = np.diff(count)
    if (grown < 0).sum() > max(1.0, _MOST_RESTARTS * len(grown)):
        return None
    known = grown >= 0
    return wall_ns[1:][known], grown[known] / (np.diff(wall_ns)[known] / 1e9)


def _arrays(history: object) -> Arrays | None:
    """Return valid times and values, sorted by time."""
    if not isinstance(history, list) or len(history) != 2:
        return None
    try:
        ms, value = (np.array(column, np.float64) for column in history)
    except (TypeError, ValueError, OverflowError):
        return None
    if ms.ndim != 1 or ms.shape != value.shape:
        return None
    # NaN compares as false.
    usable = (ms >= 0) & (ms < _LATEST_MS) & (np.abs(value) < _LARGEST_VALUE)
    order = np.argsort(ms[usable], kind="stable")
    return ms[usable][order].astype(np.int64) * 10**6, value[usable][order]
