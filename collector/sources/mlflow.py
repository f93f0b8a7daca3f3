"""The logs of an MLflow run: those that recorders uploaded, otherwise all of its artifacts, and what
MLflow itself knows of it.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

from stallscope.collector.mlflow.artifacts import logs_among
from stallscope.collector.mlflow.client import Artifact, MlflowRun
from stallscope.collector.mlflow.layout import LOGS
from stallscope.collector.mlflow.metrics import as_file, known_run, of_machines
from stallscope.collector.mlflow.old_store import OldStore

from .base import Source, SourceFile

# A folder per log, and many logs.
_AT_ONCE = 8
# Deep enough for whatever a training logs.
_DEEPEST = 12


class MlflowArtifacts(Source):
    """The logs of one run, found by MLFLOW_TRACKING_URI and MLflow's own credentials."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.where = f"mlflow:{run_id}"
        self._copies = _Copies()

    def files(self) -> list[SourceFile]:
        old = OldStore.in_use()
        if old is not None:
            return old.run(self._run_id).logs()
        run = MlflowRun(self._run_id)
        artifacts = _below(run, LOGS) or _below(run, "")
        logs = logs_among([self._file(run, artifact) for artifact in artifacts])
        if any(one.path.startswith(f"{LOGS}/") for one in artifacts):
            return [*logs, *of_machines(run)]
        return [*logs, as_file(known_run(run, len(artifacts), len(logs)))]

    def _file(self, run: MlflowRun, artifact: Artifact) -> SourceFile:
        return SourceFile(
            name=artifact.path,
            where=f"{self.where}/{artifact.path}",
            size=artifact.size,
            # Artifacts have no times: one that was replaced by one of its size is not noticed.
            version=str(artifact.size),
            reads=partial(self._copies.read, run, artifact),
        )


def _below(run: MlflowRun, folder: str) -> list[Artifact]:
    """All files below a folder of artifacts."""
    files: list[Artifact] = []
    folders = [folder]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in range(_DEEPEST):
            found = list(chain.from_iterable(pool.map(run.artifacts, folders)))
            files += [one for one in found if not one.is_folder]
            folders = [one.path for one in found if one.is_folder]
    return files


class _Copies:
    """Artifacts on the local disk while they are read: servers give them as wholes only."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def read(self, run: MlflowRun, artifact: Artifact, start: int, end: int | None) -> bytes:
        local = self._place() / hashlib.sha256(artifact.path.encode()).hexdigest()
        if not local.exists():
            unfinished = local.with_suffix(".part")
            run.download(artifact.path, unfinished)
            unfinished.replace(local)
        with local.open("rb") as file:
            file.seek(start)
            data = file.read(-1 if end is None else end - start)
        if end is None or end >= artifact.size:
            # Read to its end: nobody needs it any more.
            local.unlink(missing_ok=True)
        return data

    def _place(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="stallscope-mlflow-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            return self._folder
