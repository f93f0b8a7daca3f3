"""Read the folder ``mlruns`` of older MLflow versions, which MLflow 3 cannot open.

mlruns/EXPERIMENT/meta.yaml
                  RUN_ID/meta.yaml
                         params/NAME, tags/NAME    the value
                         metrics/NAME              lines of: milliseconds value step
                         artifacts/
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from stallscope.errors import MissingExtraError, NotFoundError, UnreadableError

from ..sources.base import SourceFile
from ..sources.chunk_names import LOGS
from ..sources.files import Files
from .artifacts import logs_among
from .metrics import History, MlflowRecord, checked_record_file, metrics_to_read, record_file
from .system_metrics import read_histories

_DEFAULT = "mlruns"
_META = "meta.yaml"
# The codes of a run's status.
_STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}


@dataclass(frozen=True)
class OldRun:
    """A run in a folder ``mlruns``."""

    folder: Path
    experiment: str
    meta: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def name(self) -> str:
        return str(self.meta.get("run_name") or self.id)

    @property
    def where(self) -> str:
        return f"mlflow:{self.id}"

    @cached_property
    def params(self) -> dict[str, str]:
        return dict(self._texts("params"))

    @cached_property
    def tags(self) -> dict[str, str]:
        return dict(self._texts("tags"))

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Return the last value of each metric."""
        return {name: _last_value(text) for name, text in self._texts("metrics") if text.strip()}

    def logs(self) -> list[SourceFile]:
        """Return the run's logs, or else its possible logs and MLflow's record of it.

        Raises:
            NotFoundError: if it has neither logs nor metrics; the message lists what it has.
            UnreadableError: if its artifacts are elsewhere and cannot be reached.
        """
        local = self.folder / "artifacts"
        # If the folder was moved, its artifact URI is outdated.
        place = str(local) if local.is_dir() else str(self.meta.get("artifact_uri") or local)
        artifacts = Files(place).files()
        logs = logs_among(artifacts)
        if any(one.name.startswith(f"{LOGS}/") for one in artifacts):
            record = self._read_record(0, 0, ())
            return [*logs, *([record_file(record)] if record.system_metrics else [])]
        record = self._read_record(len(artifacts), len(logs), metrics_to_read(self.metrics))
        return [*logs, checked_record_file(record)]

    def _read_record(
        self, artifacts: int, possible_logs: int, names: Iterable[str]
    ) -> MlflowRecord:
        texts = dict(self._texts("metrics"))

        def history(name: str) -> History:
            return _history(texts[name])

        system_metrics, skipped = read_histories(texts, history)
        return MlflowRecord(
            where=self.where,
            run_id=self.id,
            run_name=self.name,
            status=_STATUS.get(str(self.meta.get("status")), "RUNNING"),
            start_ms=self.meta.get("start_time"),
            end_ms=self.meta.get("end_time"),
            params=self.params,
            training_data={},
            metrics={name: history(name) for name in names},
            metric_names=sorted(self.metrics),
            artifacts=artifacts,
            possible_logs=possible_logs,
            system_metrics=system_metrics,
            system_metrics_left_out=skipped,
        )

    def _texts(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield the name and content of each file of a kind; names may have slashes."""
        folder = self.folder / kind
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path.read_text(errors="replace")


class OldStore:
    """A folder ``mlruns``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def in_use(cls) -> OldStore | None:
        """Return the store that MLflow would use; None if that is not a folder ``mlruns``."""
        uri = os.environ.get("MLFLOW_TRACKING_URI") or _DEFAULT
        folder = Path(url2pathname(urlsplit(uri).path)) if uri.startswith("file:") else Path(uri)
        return cls(folder) if is_old_store(folder) else None

    def runs(self) -> list[OldRun]:
        """Return all runs that were not deleted, by experiment and id.

        Raises:
            MissingExtraError: if PyYAML is not installed.
        """
        found = (_run(meta.parent) for meta in sorted(self.folder.glob(f"*/*/{_META}")))
        return [run for run in found if run is not None]

    def run(self, run_id: str) -> OldRun:
        """Return the run of that id.

        Raises:
            NotFoundError: if there is none.
        """
        for folder in sorted(self.folder.iterdir()):
            place = folder / Path(run_id).name
            run = _run(place) if (place / _META).is_file() else None
            if run is not None:
                return run
        raise NotFoundError(f"mlflow:{run_id}: there is no such run in {self.folder}")


def is_old_store(folder: Path) -> bool:
    """Whether a folder is a store of an older MLflow."""
    return folder.is_dir() and any(folder.glob(f"*/{_META}"))


def _run(folder: Path) -> OldRun | None:
    """Return the run in a folder; None if it was deleted, or the folder is not a run."""
    meta = _yaml(folder / _META)
    if "run_id" not in meta or meta.get("lifecycle_stage") == "deleted":
        return None
    experiment = folder.parent / _META
    name = _yaml(experiment).get("name") if experiment.is_file() else None
    return OldRun(folder, str(name or folder.parent.name), meta)


def _yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("mlflow", "PyYAML") from error
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UnreadableError(f"{path}: not a valid file of MLflow") from error
    return content if isinstance(content, dict) else {}


def _history(text: str) -> History:
    """Parse the values in a metric's file; skip invalid lines."""
    values = []
    for line in text.splitlines():
        fields = line.split()
        try:
            values.append((int(fields[0]), int(fields[2]), float(fields[1])))
        except (IndexError, ValueError):
            continue
    return values


def _last_value(text: str) -> float:
    """Return the value in the last line of a metric's file."""
    fields = text.strip().splitlines()[-1].split()
    try:
        return float(fields[1])
    except (IndexError, ValueError):
        return float("nan")
