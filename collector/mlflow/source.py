"""Read the logs of an MLflow run: uploaded step logs, or else all artifacts and MLflow's record."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..sources.base import Source, SourceFile, announced_wait, files_below
from ..sources.chunk_names import LOGS
from ..sources.copies import LocalCopies
from .client import Artifact, MlflowRun
from .metrics import logs_and_record, server_history, server_record
from .old_store import logs_of_old_run, old_store


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
