"""Read the logs of an MLflow run: uploaded step logs, or else all artifacts and MLflow's record."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from stallscope.errors import MissingExtraError, NotFoundError, UnreadableError

from ..sources.chunk_names import LOGS
from ..sources.files import Files
from ..sources.source import LocalCopies, Source, SourceFile, announced_wait, files_below
from .client import Artifact, MlflowRun
from .metrics import History, MlflowRecord, logs_and_record, server_history, server_record

_DEFAULT = "mlruns"
_META = "meta.yaml"
# The codes of a run's status.
_STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}


class MlflowArtifacts(Source):
    """The logs of a run, found by MLFLOW_TRACKING_URI and MLflow's credentials."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.where = f"mlflow:{run_id}"
        self._copies = LocalCopies("mlflow")

    def files(self) -> list[SourceFile]:
        folder = old_store()
        if folder is not None:
            return logs_of_old_run(folder, self._run_id)
        # MLflow's client tries again, for minutes.
        with announced_wait(self.where):
            run = MlflowRun(self._run_id)
            artifacts = files_below(run.artifacts, LOGS) or files_below(run.artifacts, "")
            files = [self._file(run, artifact) for artifact in artifacts]
            return logs_and_record(files, server_record(run), partial(server_history, run))

    def _file(self, run: MlflowRun, artifact: Artifact) -> SourceFile:
        return SourceFile(
            name=artifact.path,
            where=f"{self.where}/{artifact.path}",
            size=artifact.size,
            # Artifacts have no timestamps: a replacement of the same size goes unnoticed.
            version=str(artifact.size),
            read_range=partial(
                self._copies.read, artifact.path, partial(self._download, run, artifact.path)
            ),
        )

    def _download(self, run: MlflowRun, path: str, local: Path) -> None:
        with announced_wait(self.where, "reading"):
            run.download(path, local)


# -- Read the folder ``mlruns`` of older MLflow versions, which MLflow 3 cannot open --------------
#
# mlruns/EXPERIMENT/meta.yaml
#                   RUN_ID/meta.yaml
#                          params/NAME, tags/NAME    the value
#                          metrics/NAME              lines of: milliseconds value step
#                          artifacts/


def old_store() -> Path | None:
    """Return the folder ``mlruns`` that MLflow would use; None if it uses something else."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or _DEFAULT
    folder = Path(url2pathname(urlsplit(uri).path)) if uri.startswith("file:") else Path(uri)
    return folder if is_old_store(folder) else None


def is_old_store(folder: Path) -> bool:
    """Whether a folder is a store of an older MLflow."""
    return folder.is_dir() and any(folder.glob(f"*/{_META}"))


def logs_of_old_run(store: Path, run_id: str) -> list[SourceFile]:
    """Return the logs of a run, or else its possible logs and MLflow's record of it.

    Raises:
        MissingExtraError: if PyYAML is not installed.
        NotFoundError: if there is no such run, or it has neither logs nor metrics.
        UnreadableError: if its artifacts are elsewhere and cannot be reached.
    """
    folder, meta = _run(store, run_id)
    local = folder / "artifacts"
    # If the folder was moved, its artifact URI is outdated.
    place = str(local) if local.is_dir() else str(meta.get("artifact_uri") or local)
    metrics = {name: text for name, text in _texts(folder / "metrics").items() if text.strip()}
    record = MlflowRecord(
        where=f"mlflow:{folder.name}",
        run_id=folder.name,
        run_name=str(meta.get("run_name") or folder.name),
        status=_STATUS.get(str(meta.get("status")), "RUNNING"),
        start_ms=meta.get("start_time"),
        end_ms=meta.get("end_time"),
        params=_texts(folder / "params"),
        training_data={},
        metric_names=sorted(metrics),
    )
    return logs_and_record(Files(place).files(), record, lambda name: _history(metrics[name]))


def _run(store: Path, run_id: str) -> tuple[Path, dict[str, Any]]:
    """Return a run's folder and metadata.

    Raises:
        NotFoundError: if there is none, or it was deleted.
    """
    for experiment in sorted(store.iterdir()):
        folder = experiment / Path(run_id).name
        meta = _yaml(folder / _META) if (folder / _META).is_file() else {}
        if "run_id" in meta and meta.get("lifecycle_stage") != "deleted":
            return folder, meta
    raise NotFoundError(f"mlflow:{run_id}: no such run in {store}")


def _texts(folder: Path) -> dict[str, str]:
    """Return the content of each file by its name, which may have slashes."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(errors="replace")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


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
