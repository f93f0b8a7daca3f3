"""Upload logs to an MLflow run after training; skip bytes that the run already has."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from stallscope.errors import NotFoundError

from ..sources.source import Source, SourceFile, is_companion_file
from .client import MlflowRun
from .log_upload import LogUpload

# Logs are uploaded in parallel, because there are many small chunks.
_AT_ONCE = 8


@dataclass(frozen=True)
class Uploaded:
    """The result of an upload."""

    #: The number of logs, and of those that the run already has completely.
    logs: int
    unchanged: int
    #: The number of uploaded bytes.
    size: int
    #: Sentences about what could not be read.
    warnings: tuple[str, ...] = ()


def upload_logs(place: Source, run_id: str) -> Uploaded:
    """Upload the bytes of a place's logs that the run lacks.

    Raises:
        MissingExtraError: if mlflow is not installed.
        NotFoundError: if there are no logs, or no such run.
        UnreadableError: if the server cannot be reached or denies access; the next upload continues
            from there.
    """
    files = place.files()
    warnings = tuple(
        f"{file.where}: cannot be read: {file.problem}" for file in files if file.problem
    )
    logs = [
        file
        for file in files
        if not (file.problem or is_companion_file(file.name) or _is_hidden(file.name))
    ]
    if not logs:
        raise NotFoundError(f"{place.where}: there are no logs to upload")
    run = MlflowRun(run_id)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        sizes = list(pool.map(partial(_upload, run), logs))
    return Uploaded(len(logs), sizes.count(0), sum(sizes), warnings)


def _upload(run: MlflowRun, file: SourceFile) -> int:
    return LogUpload(file.name, file.read).upload_new(run, whole_lines=False)


def _is_hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")
