"""Read logs in a Databricks workspace: those that clusters deliver, and any other path.

    databricks:job/RUN_ID           the clusters of a job run
    databricks:cluster/CLUSTER_ID   one cluster
    dbfs:/path, /Volumes/…          a folder or a file on DBFS or on a volume

Databricks' SDK finds the workspace and the credentials: in environment variables, in
``~/.databrickscfg`` or in the machine's identity. Logs that clusters deliver to a bucket are read with
the user's keys of the bucket.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from stallscope import __version__
from stallscope.errors import (
    MissingExtraError,
    NotFoundError,
    StallscopeError,
    UnansweredError,
    UnreadableError,
    UsageError,
    timed_out,
)

from .buckets import S3Files
from .source import Source, SourceFile, announced_wait, files_below, reason
from .spark_layout import is_event_log

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

_RESOURCE = re.compile(r"databricks:(?:job/(?P<run>\d+)|cluster/(?P<cluster>[\w.-]+))")
# The largest request that the DBFS API allows.
_DBFS_BLOCK = 1 << 20
# A workspace must answer a first request within this time.
_ANSWER_SECONDS = 10
# Later requests may take longer, the SDK's default, and are retried for a while.
_REQUEST_SECONDS = 60
_RETRY_SECONDS = 30
# The errors raised here have messages; the SDK must not log them again.
logging.getLogger("databricks.sdk").addHandler(logging.NullHandler())

_UNANSWERED = "the workspace does not answer; is DATABRICKS_HOST right?"
_CREDENTIALS = (
    "the SDK reads DATABRICKS_HOST and DATABRICKS_TOKEN, and ~/.databrickscfg "
    "(DATABRICKS_CONFIG_PROFILE names a section)"
)


class DatabricksLogs(Source):
    """The logs of a job run, of a cluster, or below a path."""

    def __init__(self, text: str) -> None:
        self.where = text
        resource = _RESOURCE.fullmatch(text)
        if text.startswith("databricks:") and resource is None:
            raise UsageError(
                f"{text}: write databricks:job/RUN_ID or databricks:cluster/CLUSTER_ID"
            )
        self._run_id = resource["run"] if resource else None
        self._cluster_id = resource["cluster"] if resource else None
        self._workspace: _Workspace | None = None

    def files(self) -> list[SourceFile]:
        with announced_wait(self.where):
            return sorted(self._list(), key=lambda file: file.name)

    def _list(self) -> list[SourceFile]:
        # Reuse it, because the SDK starts with a request to identify the host.
        workspace = self._workspace = self._workspace or _Workspace(self.where)
        if self._run_id:
            return _files_of_run(workspace, int(self._run_id))
        if self._cluster_id:
            return _files_of_cluster(workspace, self._cluster_id)
        return workspace.files_below(self.where)


class _NotDeliveredError(NotFoundError):
    """A cluster does not deliver its logs, or has not delivered them yet."""


class _Workspace:
    """A client of a workspace; its errors name the user's place."""

    def __init__(self, where: str) -> None:
        self.where = where
        with _convert_errors(where):
            self._client = _client()

    def run(self, run_id: int) -> Any:
        with _convert_errors(self.where, f"there is no run {run_id} of a job"):
            return self._client.jobs.get_run(run_id)

    def cluster(self, cluster_id: str) -> Any:
        missing = (
            f"there is no cluster {cluster_id}; Databricks deletes clusters 30 days after they "
            "terminate: name the folder of its logs, such as dbfs:/cluster-logs/" + cluster_id
        )
        with _convert_errors(self.where, missing):
            return self._client.clusters.get(cluster_id)

    def files_below(self, place: str, prefix: str = "") -> list[SourceFile]:
        """List all files below a path of DBFS or of a volume; the path may be a file.

        Spark's event logs are left out, because they are large and have no training logs.
        """
        root = _path(place)
        with _convert_errors(self.where, f"there is no {place}"):
            # The SDK's recursive listing fails on volumes.
            infos = files_below(partial(self._list_folder, root), root)
        return [self._file(info, prefix + _name(info, root)) for info in infos]

    def _list_folder(self, root: str, folder: str) -> list[Any]:
        return [
            info
            for info in self._client.dbfs.list(folder)
            if not is_event_log(_name(info, root) + ("/" if info.is_dir else ""))
        ]

    def _file(self, info: Any, name: str) -> SourceFile:
        path, size = str(info.path), int(info.file_size or 0)
        return SourceFile(
            name=name,
            where=f"{'' if _on_volume(path) else 'dbfs:'}{path}",
            size=size,
            version=str(info.modification_time),
            read_range=partial(self._bytes, path, size),
        )

    def _bytes(self, path: str, size: int, start: int, end: int | None) -> bytes:
        end = size if end is None else end
        if start >= end:
            return b""
        reading = announced_wait(self.where, "reading")
        with reading, _convert_errors(path, "the file was removed"):
            if _on_volume(path):
                return self._volume_bytes(path, start, end)
            return b"".join(self._dbfs_blocks(path, start, end))

    def _volume_bytes(self, path: str, start: int, end: int) -> bytes:
        # The SDK's function for this reads whole files.
        headers = {"Accept": "application/octet-stream", "Range": f"bytes={start}-{end - 1}"}
        answer: Any = self._client.api_client.do(
            "GET", f"/api/2.0/fs/files{quote(path)}", headers=headers, raw=True
        )
        with answer["contents"] as contents:
            data = bytes(contents.read())
        # A server without range requests sends the whole file.
        return data if len(data) <= end - start else data[start:end]

    def _dbfs_blocks(self, path: str, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            length = min(_DBFS_BLOCK, end - start)
            block = self._client.dbfs.read(path, offset=start, length=length)
            if not block.bytes_read or block.data is None:
                return
            yield base64.b64decode(block.data)
            start += block.bytes_read


def _files_of_run(workspace: _Workspace, run_id: int) -> list[SourceFile]:
    """Return the logs of all clusters of a run, each below the cluster's id."""
    clusters = _clusters(workspace, workspace.run(run_id))
    if not clusters:
        raise NotFoundError(
            f"{workspace.where}: this run has no cluster: it has not started, or it is serverless, "
            "and serverless runs deliver no logs"
        )
    files: list[SourceFile] = []
    errors: list[StallscopeError] = []
    for cluster in clusters:
        try:
            files += _files_of_cluster(workspace, cluster, f"{cluster}/")
        except _NotDeliveredError as error:
            errors.append(error)
    if not files:
        raise errors[0]
    return files


def _clusters(workspace: _Workspace, run: Any) -> list[str]:
    """Return the clusters of a run's tasks, each once, including those of for-each tasks."""
    tasks = [run, *(run.tasks or ())]
    for task in run.tasks or ():
        if task.for_each_task:
            tasks += workspace.run(task.run_id).iterations or ()
    used = [task.cluster_instance.cluster_id for task in tasks if task.cluster_instance]
    return [cluster for cluster in dict.fromkeys(used) if cluster]


def _files_of_cluster(workspace: _Workspace, cluster_id: str, prefix: str = "") -> list[SourceFile]:
    place = f"{_destination(workspace, cluster_id)}/{cluster_id}"
    try:
        if not place.startswith("s3"):
            return workspace.files_below(place, prefix)
        return [replace(file, name=prefix + file.name) for file in S3Files(place).files()]
    except NotFoundError as error:
        raise _NotDeliveredError(
            f"{workspace.where}: there are no logs at {place} yet; clusters deliver their logs every "
            "five minutes and when they terminate"
        ) from error


def _destination(workspace: _Workspace, cluster_id: str) -> str:
    """Return the folder or bucket that a cluster delivers its logs to."""
    delivery = workspace.cluster(cluster_id).cluster_log_conf
    kinds = (delivery.volumes, delivery.dbfs, delivery.s3) if delivery else ()
    destination = next((str(kind.destination) for kind in kinds if kind), None)
    if destination is None:
        raise _NotDeliveredError(
            f"{workspace.where}: cluster {cluster_id} does not deliver its logs; set a destination "
            "under Advanced options, Logging (cluster_log_conf), before the next run"
        )
    return destination.rstrip("/")


def _path(place: str) -> str:
    """Convert ``dbfs:/a/b``, ``dbfs:///a/b`` or ``/Volumes/…`` to a path for the SDK."""
    return "/" + place.removeprefix("dbfs:").strip("/")


def _name(info: Any, root: str) -> str:
    """Return the name of a file or folder below the root; the root may be the file."""
    return str(info.path).removeprefix(root).strip("/") or str(info.path).rpartition("/")[2]


def _on_volume(path: str) -> bool:
    return path.startswith("/Volumes/")


def _client() -> WorkspaceClient:
    try:
        from databricks.sdk import WorkspaceClient
        from databricks.sdk.config import Config
    except ImportError as error:
        raise MissingExtraError("databricks", "the Databricks SDK") from error
    # The configuration asks the host about itself, and does without if that fails: one attempt will do.
    config = Config(
        product="stallscope",
        product_version=__version__,
        http_timeout_seconds=_ANSWER_SECONDS,
        retry_timeout_seconds=1,
    )
    _require_answer(config.host)
    config.http_timeout_seconds = _REQUEST_SECONDS
    config.retry_timeout_seconds = _RETRY_SECONDS
    return WorkspaceClient(config=config)


def _require_answer(host: str) -> None:
    """Raise an error within seconds if the host answers nothing, because the SDK retries for minutes."""
    import requests

    try:
        requests.head(host, timeout=_ANSWER_SECONDS)
    except requests.RequestException as error:
        # The requests that follow report other errors, and are repeated where that may help.
        if timed_out(error):
            raise


@contextmanager
def _convert_errors(where: str, missing: str = "") -> Iterator[None]:
    """Convert errors of the SDK to one-line errors without credentials.

    Raises:
        NotFoundError: with the message ``missing``, if the workspace has no such object.
        UnreadableError: for all other errors.
    """
    try:
        yield
    except StallscopeError:
        raise
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if missing and kinds & {"NotFound", "InvalidParameterValue"}:
            raise NotFoundError(f"{where}: {missing}") from error
        if timed_out(error):
            raise UnansweredError(f"{where}: {_UNANSWERED}") from error
        if kinds & {"Unauthenticated", "PermissionDenied"}:
            # PermissionError as the cause prevents retries.
            raise UnreadableError(f"{where}: {_access_error(kinds, error)}") from PermissionError()
        raise UnreadableError(f"{where}: {_other_error(kinds, error)}") from error


def _access_error(kinds: set[str], error: Exception) -> str:
    if "Unauthenticated" in kinds:
        return f"the workspace rejects the credentials; {_CREDENTIALS}"
    # The SDK appends its settings, with names of secrets.
    message = reason(error).partition(". Config:")[0]
    return f"the workspace does not allow it: {message}"


def _other_error(kinds: set[str], error: Exception) -> str:
    if "ValueError" in kinds:
        return f"no workspace and credentials are configured; {_CREDENTIALS}"
    if kinds & {"ConnectionError", "RequestException"}:
        return _UNANSWERED
    return f"Databricks reports: {reason(error)}"
