"""What MLflow itself knows of a run, as one file beside the run's artifacts: metrics with their times.

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
from .client import MlflowRun, sentences
from .contents import no_logs
from .system_metrics import PREFIX, Times, histories_of

BEGINNING = b'{"stallscope_mlflow": 1,'
NAME = "metrics.mlflow.json"
# Each is a request of its own, and one metric of training and one of validation are enough.
_MOST_HISTORIES = 16
# What MLflow measures of the machine, and what Stallscope has written itself.
_NOT_OF_TRAINING = (PREFIX, f"{FOLDER}.")
# Names that say at which epoch or step something was, or that training logs first of all.
_TELLING = ("epoch", "loss", "step")

#: Values of a metric: milliseconds since 1970, step, value.
History = Sequence[tuple[int, int, float]]


@dataclass(frozen=True)
class KnownRun:
    """What MLflow knows of a run."""

    where: str
    run_id: str
    run_name: str
    #: As MLflow writes it: RUNNING, FINISHED, FAILED, KILLED.
    status: str
    start_ms: int | None
    end_ms: int | None
    params: Mapping[str, str]
    #: What autologging wrote of the data that was trained on.
    training_data: Mapping[str, Any]
    metrics: Mapping[str, History]
    #: All of them, also those whose histories were not asked for.
    metric_names: Sequence[str]
    #: How many artifacts there are, and how many of them may be logs.
    artifacts: int
    possible_logs: int
    #: What MLflow measured of machines.
    system_metrics: Mapping[str, Times] = field(default_factory=dict)
    #: How many of those there are whose histories were not asked for.
    system_metrics_left_out: int = 0
    #: Why none of them was read; None where there was no trouble.
    system_metrics_trouble: str | None = None


def known_run(run: MlflowRun, artifacts: int, possible_logs: int) -> KnownRun:
    """What a server knows of a run.

    Raises:
        NotFoundError, UnreadableError: if it does not tell the histories of metrics.
    """
    return _known(run, artifacts, possible_logs, worth_reading(run.run.data.metrics))


def of_machines(run: MlflowRun) -> list[SourceFile]:
    """The file with what MLflow measured of machines, for a run that has step logs: they tell all else.

    Nothing where MLflow has measured nothing.
    """
    if not any(name.startswith(PREFIX) for name in run.run.data.metrics):
        return []
    return [file_of(_known(run, artifacts=0, possible_logs=0, names=()))]


def _known(run: MlflowRun, artifacts: int, possible_logs: int, names: Sequence[str]) -> KnownRun:
    info, data = run.run.info, run.run.data

    def history(name: str) -> History:
        return [
            (int(one.timestamp), int(one.step), float(one.value))
            for one in run.client.get_metric_history(run.id, name)
        ]

    with sentences(run.where):
        histories = {name: history(name) for name in names}
    # Steps and epochs are what a run is about: it is read without its machines' metrics, too.
    trouble = None
    machines: Mapping[str, Times] = {}
    left_out = 0
    try:
        with sentences(run.where):
            machines, left_out = histories_of(data.metrics, history)
    except StallscopeError as error:
        trouble = str(error)
    return KnownRun(
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
        system_metrics=machines,
        system_metrics_left_out=left_out,
        system_metrics_trouble=trouble,
    )


def worth_reading(names: Iterable[str]) -> list[str]:
    """The metrics whose histories may tell when epochs or steps ended, those that do best first."""
    own = [name for name in names if not name.startswith(_NOT_OF_TRAINING)]
    own.sort(key=lambda name: (not any(word in name.lower() for word in _TELLING), name))
    return own[:_MOST_HISTORIES]


def as_file(known: KnownRun) -> SourceFile:
    """What is known, as a file among the run's logs.

    Raises:
        NotFoundError: if there is nothing that may tell times, neither logs nor metrics.
    """
    if not known.possible_logs and not known.metrics:
        names = known.metric_names
        raise NotFoundError(no_logs(known.where, known.artifacts, 0, names, known.params))
    return file_of(known)


def file_of(known: KnownRun) -> SourceFile:
    """What is known, as a file among the run's logs, whatever it is."""
    metrics = {name: _finite(history) for name, history in sorted(known.metrics.items())}
    told = {"stallscope_mlflow": 1, **vars(known), "metrics": metrics}
    data = json.dumps(told, default=str).encode()
    return SourceFile(
        name=NAME,
        where=f"{known.where}/{NAME}",
        size=len(data),
        version=hashlib.sha256(data).hexdigest()[:16],
        reads=lambda start, end: data[start:end],
    )


def _training_data(run: Any) -> dict[str, Any]:
    """What autologging wrote of the data that was trained on; nothing where it did not."""
    inputs = getattr(run, "inputs", None)
    for one in inputs.dataset_inputs if inputs is not None else ():
        if any(tag.value == "train" for tag in one.tags):
            return _described(one.dataset.profile)
    return {}


def _described(profile: str | None) -> dict[str, Any]:
    try:
        content = json.loads(profile or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _finite(history: History) -> list[tuple[int, int, float | None]]:
    """JSON knows no other numbers; a loss may be any."""
    return [(ms, step, value if math.isfinite(value) else None) for ms, step, value in history]
