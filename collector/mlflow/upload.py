"""Upload logs to a run after training; skip bytes that the run already has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stallscope.errors import NotFoundError

from ..sources.base import SourceFile, is_companion_file
from ..sources.files import Files
from .chunks import LogUpload
from .client import MlflowRun

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


def upload_folder(
    folder: Path | str,
    run_id: str,
    progress: Callable[[str, int], None] = lambda _name, _size: None,
) -> Uploaded:
    """Upload the new bytes of the logs in a folder; see ``upload_files``."""
    files = Files(str(folder))
    return upload_files(files.where, files.files(), run_id, progress)


def upload_files(
    where: str,
    files: Iterable[SourceFile],
    run_id: str,
    progress: Callable[[str, int], None] = lambda _name, _size: None,
) -> Uploaded:
    """Upload the bytes of these logs that the run lacks.

    Args:
        where: the place of the logs, for messages.
        progress: called with the name of each log and its number of uploaded bytes, from any thread.

    Raises:
        MissingExtraError: if mlflow is not installed.
        NotFoundError: if there are no logs, or no such run.
        UnreadableError: if the server cannot be reached or denies access; the next upload continues
            from there.
    """
    logs = [file for file in files if not (is_companion_file(file.name) or _is_hidden(file.name))]
    if not logs:
        raise NotFoundError(f"{where}: there are no logs to upload")
    run = MlflowRun(run_id)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        sizes = list(pool.map(partial(_upload, run, progress), logs))
    return Uploaded(len(logs), sizes.count(0), sum(sizes))


def _upload(run: MlflowRun, progress: Callable[[str, int], None], file: SourceFile) -> int:
    size = LogUpload(file.name, file.read).upload_new(run, whole_lines=False)
    progress(file.name, size)
    return size


def _is_hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")
