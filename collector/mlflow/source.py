"""Read the logs of an MLflow run: uploaded step logs, or else all artifacts and MLflow's record."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

from ..sources.base import Source, SourceFile
from ..sources.chunk_names import LOGS
from ..sources.copies import LocalCopies
from .artifacts import logs_among
from .client import Artifact, MlflowRun
from .metrics import checked_record_file, read_record, system_metrics_files
from .old_store import OldStore

# Folders listed in parallel; there is one per log.
_AT_ONCE = 8
# Deeper than the folders of any training.
_DEEPEST = 12


class MlflowArtifacts(Source):
    """The logs of a run, found by MLFLOW_TRACKING_URI and MLflow's credentials."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.where = f"mlflow:{run_id}"
        self._copies = LocalCopies("mlflow")

    def files(self) -> list[SourceFile]:
        old = OldStore.in_use()
        if old is not None:
            return old.run(self._run_id).logs()
        run = MlflowRun(self._run_id)
        artifacts = _below(run, LOGS) or _below(run, "")
        logs = logs_among([self._file(run, artifact) for artifact in artifacts])
        if any(one.path.startswith(f"{LOGS}/") for one in artifacts):
            return [*logs, *system_metrics_files(run)]
        return [*logs, checked_record_file(read_record(run, len(artifacts), len(logs)))]

    def _file(self, run: MlflowRun, artifact: Artifact) -> SourceFile:
        return SourceFile(
            name=artifact.path,
            where=f"{self.where}/{artifact.path}",
            size=artifact.size,
            # Artifacts have no timestamps: a replacement of the same size goes unnoticed.
            version=str(artifact.size),
            read_range=partial(
                self._copies.read, artifact.path, partial(run.download, artifact.path)
            ),
        )


def _below(run: MlflowRun, folder: str) -> list[Artifact]:
    """List all files below a folder of artifacts."""
    files: list[Artifact] = []
    folders = [folder]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in range(_DEEPEST):
            found = list(chain.from_iterable(pool.map(run.artifacts, folders)))
            files += [one for one in found if not one.is_folder]
            folders = [one.path for one in found if one.is_folder]
    return files
