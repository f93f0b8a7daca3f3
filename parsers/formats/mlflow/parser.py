"""MLflow's record of a run: metrics with the times at which they were logged, params, start and end.

Autologging of TensorFlow, Keras and Lightning logs metrics once per epoch (``metric_times``). The start
of the first epoch is not logged: the epoch is left out. MLflow's machine metrics (``system/…``) become
series.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from stallscope.collector.mlflow.metrics import BEGINNING, no_logs_message
from stallscope.errors import UnreadableError
from stallscope.run import Problem

from ...base import Parsed, Parser
from ...epochs_only import epochs_log, in_one_file
from ...metric_times import PlannedEpochs, Value, Values, are_of_one_process, times_in
from ...world_size import MOST_RANKS
from .system_metrics import system_series

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
        problems = []
        if times.facts is not None:
            facts["known_from"] = KNOWN_FROM
        else:
            problems.append(Problem(path, _nothing(content)))
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
                problems=() if part else problems,
            )
            for part, (known, epochs) in enumerate(times.by_fit(zero))
        ]
        whole = in_one_file(logs, len(data))
        return replace(whole, series=series, series_problems=missing)


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
