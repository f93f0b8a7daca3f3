"""Read MLflow's record of a run, and present it as a file among the run's artifacts.

{"stallscope_mlflow": 1, "run_id": …, "start_ms": …, "params": {…},
 "metrics": {"loss": [[milliseconds since 1970, step, value], …], …},
 "system_metrics": {"system/cpu_utilization_percentage": [[milliseconds, …], [values, …]], …}, …}
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stallscope.errors import NotFoundError, StallscopeError

from ..sources.base import SourceFile
from ..sources.chunk_names import FOLDER
from .client import MlflowRun, convert_errors
from .contents import no_logs_message
from .system_metrics import PREFIX, Times, read_histories

BEGINNING = b'{"stallscope_mlflow": 1,'
NAME = "metrics.mlflow.json"
# Each history is a request, and one metric of training and one of validation are enough.
_MOST_HISTORIES = 16
# System metrics, and the metrics that Stallscope has written.
_NOT_OF_TRAINING = (PREFIX, f"{FOLDER}.")
# Names of metrics that training logs per epoch or step.
_PREFERRED = ("epoch", "loss", "step")

#: The values of a metric: milliseconds since 1970, step, value.
History = Sequence[tuple[int, int, float]]


@dataclass(frozen=True)
class MlflowRecord:
    """MLflow's record of a run."""

    where: str
    run_id: str
    run_name: str
    #: MLflow's status: RUNNING, FINISHED, FAILED, KILLED.
    status: str
    start_ms: int | None
    end_ms: int | None
    params: Mapping[str, str]
    #: The description of the training data by autologging.
    training_data: Mapping[str, Any]
    metrics: Mapping[str, History]
    #: The names of all metrics, including those without a history here.
    metric_names: Sequence[str]
    #: The number of artifacts, and of those that may be logs.
    artifacts: int
    possible_logs: int
    #: Measurements of machines.
    system_metrics: Mapping[str, Times] = field(default_factory=dict)
    #: The number of system metrics without a history here.
    system_metrics_left_out: int = 0
    #: The error of reading system metrics; None without an error.
    system_metrics_trouble: str | None = None


def read_record(run: MlflowRun, artifacts: int, possible_logs: int) -> MlflowRecord:
    """Read a server's record of a run.

    Raises:
        NotFoundError, UnreadableError: if the histories of metrics cannot be read.
    """
    return _read_record(run, artifacts, possible_logs, metrics_to_read(run.run.data.metrics))


def system_metrics_files(run: MlflowRun) -> list[SourceFile]:
    """Return the file with MLflow's system metrics for a run with step logs; nothing without metrics."""
    if not any(name.startswith(PREFIX) for name in run.run.data.metrics):
        return []
    return [record_file(_read_record(run, artifacts=0, possible_logs=0, names=()))]


def _read_record(
    run: MlflowRun, artifacts: int, possible_logs: int, names: Sequence[str]
) -> MlflowRecord:
    info, data = run.run.info, run.run.data

    def history(name: str) -> History:
        return [
            (int(one.timestamp), int(one.step), float(one.value))
            for one in run.client.get_metric_history(run.id, name)
        ]

    with convert_errors(run.where):
        histories = {name: history(name) for name in names}
    # A run can be analysed without system metrics.
    system_metrics_error = None
    system_metrics: Mapping[str, Times] = {}
    system_metrics_skipped = 0
    try:
        with convert_errors(run.where):
            system_metrics, system_metrics_skipped = read_histories(data.metrics, history)
    except StallscopeError as error:
        system_metrics_error = str(error)
    return MlflowRecord(
        where=run.where,
        run_id=run.id,
        run_name=info.run_name or run.id,
        status=str(info.status),
        start_ms=info.start_time,
        end_ms=info.end_time,
        params=dict(data.params),
        training_data=_training_data(run.run),
        metrics=histories,
        metric_names=sorted(data.metrics),
        artifacts=artifacts,
        possible_logs=possible_logs,
        system_metrics=system_metrics,
        system_metrics_left_out=system_metrics_skipped,
        system_metrics_trouble=system_metrics_error,
    )


def metrics_to_read(names: Iterable[str]) -> list[str]:
    """Choose the metrics whose histories may show the ends of epochs or steps, the best first."""
    own = [name for name in names if not name.startswith(_NOT_OF_TRAINING)]
    own.sort(key=lambda name: (not any(word in name.lower() for word in _PREFERRED), name))
    return own[:_MOST_HISTORIES]


def checked_record_file(record: MlflowRecord) -> SourceFile:
    """Return the record as a file among the run's logs.

    Raises:
        NotFoundError: if the run has neither possible logs nor metrics.
    """
    if not record.possible_logs and not record.metrics:
        names = record.metric_names
        raise NotFoundError(
            no_logs_message(record.where, record.artifacts, 0, names, record.params)
        )
    return record_file(record)


def record_file(record: MlflowRecord) -> SourceFile:
    """Return the record as a file among the run's logs, without checking it."""
    metrics = {name: _finite(history) for name, history in sorted(record.metrics.items())}
    content = {"stallscope_mlflow": 1, **vars(record), "metrics": metrics}
    data = json.dumps(content, default=str).encode()
    return SourceFile(
        name=NAME,
        where=f"{record.where}/{NAME}",
        size=len(data),
        version=hashlib.sha256(data).hexdigest()[:16],
        read_range=lambda start, end: data[start:end],
    )


def _training_data(run: Any) -> dict[str, Any]:
    """Return autologging's description of the training data, if there is one."""
    inputs = getattr(run, "inputs", None)
    for one in inputs.dataset_inputs if inputs is not None else ():
        if any(tag.value == "train" for tag in one.tags):
            return _parse_profile(one.dataset.profile)
    return {}


def _parse_profile(profile: str | None) -> dict[str, Any]:
    try:
        content = json.loads(profile or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _finite(history: History) -> list[tuple[int, int, float | None]]:
    """Replace infinite values and NaN by None, because JSON does not support them."""
    return [(ms, step, value if math.isfinite(value) else None) for ms, step, value in history]
