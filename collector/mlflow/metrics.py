"""Read MLflow's record of a run: its metrics, and those of its machines.

{"stallscope_mlflow": 1, "run_id": …, "start_ms": …, "params": {…},
 "metrics": {"loss": [[milliseconds since 1970, step, value], …], …},
 "system_metrics": {"system/cpu_utilization_percentage": [[milliseconds, …], [values, …]], …}, …}
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from stallscope.errors import NotFoundError, StallscopeError
from stallscope.formatting.lists import counted

from ..recorder.step_log.line_format import SUFFIX
from ..sources.chunk_names import FOLDER, LOGS
from ..sources.pieces import join_chunks
from ..sources.source import SourceFile
from .client import MlflowRun, convert_errors

PREFIX = "system/"
#: Timestamps, milliseconds since 1970, and values.
Times = tuple[Sequence[int], Sequence[float]]
#: Returns a metric's values by its name: milliseconds since 1970, step, value.
Read = Callable[[str], Sequence[tuple[int, int, float]]]
# Each history takes a request or more: this is one quantity of 64 GPUs, or all metrics of a machine with
# eight GPUs.
_MOST_SYSTEM_HISTORIES = 64
# 40 MB in the file. A metric has 8,640 values per day.
_MOST_VALUES = 2_000_000
_AT_ONCE = 8
# The most useful metrics come first.
_FIRST = (
    re.compile(r"gpu_[0-9]+_utilization"),
    re.compile(r"cpu_utilization"),
    re.compile(r"gpu_[0-9]+_memory_usage_percentage"),
    re.compile(r"system_memory_usage_percentage"),
    re.compile(r"network_"),
    re.compile(r"gpu_[0-9]+_power_usage_watts"),
)
_DIGITS = re.compile(r"([0-9]+)")

BEGINNING = b'{"stallscope_mlflow": 1,'
NAME = "metrics.mlflow.json"
# Each history is a request, and one metric of training and one of validation are enough.
_MOST_HISTORIES = 16
# System metrics, and the metrics that Stallscope has written.
_NOT_OF_TRAINING = (PREFIX, f"{FOLDER}.")
# Names of metrics that training logs per epoch or step.
_PREFERRED = ("epoch", "loss", "step")
_MOST_NAMES = 5
# Weights and images may be large, and are not logs.
_NO_LOGS = re.compile(
    r"\.(bin|ckpt|gif|h5|jpe?g|keras|npy|npz|onnx|pb|pickle|pkl|png|pth?|safetensors|svg|tar|whl|zip)",
    re.IGNORECASE,
)
# Files of autologging: the model's summary, TensorBoard events, and metadata of checkpoints.
_AUTOLOGGED = re.compile(
    r"model_summary\.txt|events\.out\.tfevents\..+|latest_checkpoint.*|checkpoint_metrics\.json"
)
# The description of a logged model, in the model's folder.
_MODEL = "MLmodel"
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
    #: The names of all metrics, including those without a history here.
    metric_names: Sequence[str]
    metrics: Mapping[str, History] = field(default_factory=dict)
    #: The number of artifacts, and of possible logs among them.
    artifacts: int = 0
    possible_logs: int = 0
    #: Measurements of machines.
    system_metrics: Mapping[str, Times] = field(default_factory=dict)
    #: The number of system metrics without a history here.
    system_metrics_left_out: int = 0
    #: The error of reading system metrics; None without an error.
    system_metrics_trouble: str | None = None


def server_record(run: MlflowRun) -> MlflowRecord:
    """Return a server's record of a run, without histories of metrics."""
    info, data = run.run.info, run.run.data
    return MlflowRecord(
        where=run.where,
        run_id=run.id,
        run_name=info.run_name or run.id,
        status=str(info.status),
        start_ms=info.start_time,
        end_ms=info.end_time,
        params=dict(data.params),
        training_data=_training_data(run.run),
        metric_names=sorted(data.metrics),
    )


def server_history(run: MlflowRun, name: str) -> History:
    """Read the values of a metric from a server.

    Raises:
        NotFoundError, UnreadableError: if that fails.
    """
    with convert_errors(run.where):
        return [
            (int(metric.timestamp), int(metric.step), float(metric.value))
            for metric in run.client.get_metric_history(run.id, name)
        ]


def logs_and_record(
    artifacts: Sequence[SourceFile], record: MlflowRecord, history: Callable[[str], History]
) -> list[SourceFile]:
    """Return the logs of a run, or else its possible logs, with MLflow's record of it.

    With uploaded step logs, the record only adds the system metrics.

    Args:
        artifacts: the run's artifacts.
        record: the record without histories.
        history: reads the values of a metric; several threads call it.

    Raises:
        NotFoundError: if the run has neither possible logs nor metrics; the message lists what it has.
        UnreadableError: if the histories of metrics cannot be read.
    """
    logs = logs_among(artifacts)
    if any(artifact.name.startswith(f"{LOGS}/") for artifact in artifacts):
        if any(name.startswith(PREFIX) for name in record.metric_names):
            logs.append(record_file(_with_system_metrics(record, history)))
        return logs
    histories = {name: history(name) for name in metrics_to_read(record.metric_names)}
    record = replace(record, metrics=histories, artifacts=len(artifacts), possible_logs=len(logs))
    return [*logs, checked_record_file(_with_system_metrics(record, history))]


def logs_among(artifacts: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the logs among a run's artifacts; names are relative to the artifact root."""
    prefix = f"{LOGS}/"
    ours = [
        replace(artifact, name=artifact.name[len(prefix) :])
        for artifact in artifacts
        if artifact.name.startswith(prefix)
    ]
    return join_chunks(ours) if ours else _possible_logs(artifacts)


def _possible_logs(artifacts: Sequence[SourceFile]) -> list[SourceFile]:
    paths = [PurePosixPath(artifact.name) for artifact in artifacts]
    # Folders of logged models, and Stallscope's folder with its reports.
    others = {path.parent for path in paths if path.name == _MODEL} | {PurePosixPath(FOLDER)}
    return [
        file
        for file, path in zip(artifacts, paths, strict=True)
        # Users may upload a log folder under any name, also under Stallscope's.
        if SUFFIX in path.name
        or (
            not _NO_LOGS.fullmatch(path.suffix)
            and not _AUTOLOGGED.fullmatch(path.name)
            and not others.intersection(path.parents)
        )
    ]


def _with_system_metrics(record: MlflowRecord, history: Callable[[str], History]) -> MlflowRecord:
    try:
        histories, left_out = read_histories(record.metric_names, history)
    except StallscopeError as error:
        # A run can be analysed without system metrics.
        return replace(record, system_metrics_trouble=str(error))
    return replace(record, system_metrics=histories, system_metrics_left_out=left_out)


def metrics_to_read(names: Iterable[str]) -> list[str]:
    """Choose the metrics whose histories may show the ends of epochs or steps, the best first."""
    candidates = [name for name in names if not name.startswith(_NOT_OF_TRAINING)]
    candidates.sort(key=lambda name: (not any(word in name.lower() for word in _PREFERRED), name))
    return candidates[:_MOST_HISTORIES]


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


def no_logs_message(
    where: str, artifacts: int, possible_logs: int, metrics: Iterable[str], params: Iterable[str]
) -> str:
    """Return a message that lists what the run has instead, and says how to add logs.

    Args:
        where: the run.
        artifacts: the number of artifacts.
        possible_logs: the number of artifacts that were tried as logs.
        metrics: the names of its metrics.
        params: the names of its parameters.
    """
    kind = "none of them a log" if possible_logs else "weights or images"
    has = [
        f"{counted(artifacts, 'artifact')}, {kind}" if artifacts else "no artifacts",
        _count("metric", metrics),
        _count("param", params),
    ]
    return (
        f"{where}: there is no step log in this run: it has {', '.join(has)}. Give StepLogger its id, "
        f"or upload existing logs: stallscope collect FOLDER --to {where}"
    )


def _count(kind: str, names: Iterable[str]) -> str:
    ordered = sorted(names)
    if not ordered:
        return f"no {kind}s"
    more = ", …" if len(ordered) > _MOST_NAMES else ""
    return f"{counted(len(ordered), kind)} ({', '.join(ordered[:_MOST_NAMES])}{more})"


def _training_data(run: Any) -> dict[str, Any]:
    """Return autologging's description of the training data, if there is one."""
    inputs = getattr(run, "inputs", None)
    for dataset_input in inputs.dataset_inputs if inputs is not None else ():
        if any(tag.value == "train" for tag in dataset_input.tags):
            return _parse_profile(dataset_input.dataset.profile)
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


# -- Read MLflow's system metrics (``mlflow.enable_system_metrics_logging()``) --------------------
#
# Names are ``system/gpu_0_utilization_percentage``, or ``system/NODE/…`` with several nodes.


def read_histories(names: Iterable[str], read: Read) -> tuple[dict[str, Times], int]:
    """Read the histories of system metrics; also return how many were left out to bound the size.

    Args:
        names: the names of all metrics of a run.
        read: reads a history; several threads call it.
    """
    system_metrics = sorted((name for name in names if name.startswith(PREFIX)), key=_sort_key)
    histories: dict[str, Times] = {}
    values = 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, min(len(system_metrics), _MOST_SYSTEM_HISTORIES), _AT_ONCE):
            some = system_metrics[start : start + _AT_ONCE]
            for name, history in zip(some, pool.map(read, some), strict=True):
                values += len(history)
                if values > _MOST_VALUES:
                    return histories, len(system_metrics) - len(histories)
                histories[name] = _times(history)
    return histories, len(system_metrics) - len(histories)


def _sort_key(name: str) -> tuple[int, list[tuple[int, str]]]:
    """Sort by usefulness, then by name with numbers in numeric order."""
    last = name.rpartition("/")[2]
    rank = next((at for at, form in enumerate(_FIRST) if form.match(last)), len(_FIRST))
    parts = [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name)]
    return rank, parts


def _times(history: Sequence[tuple[int, int, float]]) -> Times:
    """Drop the steps, which only count values, and values that JSON does not support."""
    known = sorted((ms, value) for ms, _, value in history if math.isfinite(value))
    return [ms for ms, _ in known], [value for _, value in known]
