"""Logs to a run afterwards: what it has already is not sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stallscope.errors import NotFoundError

from ..sources.base import SourceFile, lies_beside_logs
from ..sources.files import Files
from .chunks import LogUpload
from .client import MlflowRun

# Logs are many and their chunks small: servers take several at once.
_AT_ONCE = 8


@dataclass(frozen=True)
class Uploaded:
    """What went to a run."""

    #: Logs that were found, and those of them that the run had in full already.
    logs: int
    unchanged: int
    #: Bytes that were sent.
    size: int


def upload_folder(
    folder: Path | str,
    run_id: str,
    progress: Callable[[str, int], None] = lambda _name, _size: None,
) -> Uploaded:
    """Upload what a run lacks of the logs in a folder; see ``upload_files``."""
    files = Files(str(folder))
    return upload_files(files.where, files.files(), run_id, progress)


def upload_files(
    where: str,
    files: Iterable[SourceFile],
    run_id: str,
    progress: Callable[[str, int], None] = lambda _name, _size: None,
) -> Uploaded:
    """Upload what a run lacks of these logs; doing it again sends nothing.

    Args:
        where: the place that they are from, for messages.
        progress: called with the name of each log and the bytes that were sent of it, from any thread.

    Raises:
        MissingExtraError: without mlflow.
        NotFoundError: if there are no logs, or no such run.
        UnreadableError: if the server cannot be reached or refuses; what it took stays, and the next
            upload goes on there.
    """
    logs = [file for file in files if not (lies_beside_logs(file.name) or _is_hidden(file.name))]
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
