"""Logs in a Databricks workspace: what the log delivery of clusters has put down, and any other path.

    databricks:job/RUN_ID           the clusters that a run of a job has used
    databricks:cluster/CLUSTER_ID   one cluster
    dbfs:/path, /Volumes/…          a folder or a file on DBFS or on a volume

Which workspace and whose rights are what Databricks' own SDK finds: its variables of the environment,
``~/.databrickscfg``, the machine's identity. Where clusters deliver into a bucket, that is read as every
bucket is, with the user's own keys.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from stallscope import __version__
from stallscope.errors import (
    MissingExtraError,
    NotFoundError,
    StallscopeError,
    UnreadableError,
    UsageError,
)

from .base import Source, SourceFile, reason
from .s3 import S3Files
from .spark_layout import is_event_log

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

_NAMED = re.compile(r"databricks:(?:job/(?P<run>\d+)|cluster/(?P<cluster>[\w.-]+))")
# So much at once, says the API of DBFS.
_DBFS_BLOCK = 1 << 20
# A folder per executor, and many executors.
_AT_ONCE = 8
# Deep enough for any real folder.
_DEEPEST = 12
# The SDK tries again by itself; a workspace that does not answer for so long is not there.
_RETRY_SECONDS = 30
# What goes wrong is said here, and not a second time by the SDK.
logging.getLogger("databricks.sdk").addHandler(logging.NullHandler())

_CREDENTIALS = (
    "the SDK looks into DATABRICKS_HOST and DATABRICKS_TOKEN, and into ~/.databrickscfg "
    "(DATABRICKS_CONFIG_PROFILE names a section)"
)


class DatabricksLogs(Source):
    """The logs of one job's run, one cluster, or below one path."""

    def __init__(self, text: str) -> None:
        self.where = text
        named = _NAMED.fullmatch(text)
        if text.startswith("databricks:") and named is None:
            raise UsageError(
                f"{text}: write databricks:job/RUN_ID or databricks:cluster/CLUSTER_ID"
            )
        self._run_id = named["run"] if named else None
        self._cluster_id = named["cluster"] if named else None
        self._workspace: _Workspace | None = None

    def files(self) -> list[SourceFile]:
        # Once: the SDK asks a host what it is before anything else.
        workspace = self._workspace = self._workspace or _Workspace(self.where)
        if self._run_id:
            found = _of_run(workspace, int(self._run_id))
        elif self._cluster_id:
            found = _of_cluster(workspace, self._cluster_id)
        else:
            found = workspace.below(self.where)
        return sorted(found, key=lambda file: file.name)


class _NotDeliveredError(NotFoundError):
    """A cluster's logs are nowhere: it does not deliver them, or has not yet."""


class _Workspace:
    """What is asked of a workspace, with its errors as sentences about the place that was named."""

    def __init__(self, where: str) -> None:
        self.where = where
        with _sentences(where):
            self._client = _client()

    def run(self, run_id: int) -> Any:
        with _sentences(self.where, f"there is no run {run_id} of a job"):
            return self._client.jobs.get_run(run_id)

    def cluster(self, cluster_id: str) -> Any:
        missing = (
            f"there is no cluster {cluster_id} any more; Databricks forgets clusters 30 days after "
            "their end: name the folder of its logs, as dbfs:/cluster-logs/" + cluster_id
        )
        with _sentences(self.where, missing):
            return self._client.clusters.get(cluster_id)

    def below(self, place: str, prefix: str = "") -> list[SourceFile]:
        """All files below a path of DBFS or of a volume, or the one that it is.

        Spark's event logs are left there: they are large, and hold no logs of training.
        """
        root = _path(place)
        with _sentences(self.where, f"there is no {place}"):
            found = self._walked(root)
        return [self._file(info, prefix + name) for name, info in found.items()]

    def _walked(self, root: str) -> dict[str, Any]:
        """Files below a path by their names there. (The SDK's own walk gets lost in volumes.)"""
        found = {}
        folders = [root]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in range(_DEEPEST):
                listed = list(chain.from_iterable(pool.map(self._listed, folders)))
                folders = []
                for info in listed:
                    name = info.path.removeprefix(root).strip("/") or info.path.rpartition("/")[2]
                    if info.is_dir and not is_event_log(f"{name}/"):
                        folders.append(info.path)
                    elif not info.is_dir and not is_event_log(name):
                        found[name] = info
        return found

    def _listed(self, folder: str) -> list[Any]:
        return list(self._client.dbfs.list(folder))

    def _file(self, info: Any, name: str) -> SourceFile:
        path, size = str(info.path), int(info.file_size or 0)
        return SourceFile(
            name=name,
            where=f"{'' if _on_volume(path) else 'dbfs:'}{path}",
            size=size,
            version=str(info.modification_time),
            reads=partial(self._bytes, path, size),
        )

    def _bytes(self, path: str, size: int, start: int, end: int | None) -> bytes:
        end = size if end is None else end
        if start >= end:
            return b""
        with _sentences(path, "the file has gone"):
            if _on_volume(path):
                return self._volume_bytes(path, start, end)
            return b"".join(self._dbfs_blocks(path, start, end))

    def _volume_bytes(self, path: str, start: int, end: int) -> bytes:
        # The SDK's own call for this reads whole files.
        headers = {"Accept": "application/octet-stream", "Range": f"bytes={start}-{end - 1}"}
        answer: Any = self._client.api_client.do(
            "GET", f"/api/2.0/fs/files{quote(path)}", headers=headers, raw=True
        )
        with answer["contents"] as contents:
            data = bytes(contents.read())
        # What comes from somewhere that knows no ranges is the whole file.
        return data if len(data) <= end - start else data[start:end]

    def _dbfs_blocks(self, path: str, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            length = min(_DBFS_BLOCK, end - start)
            block = self._client.dbfs.read(path, offset=start, length=length)
            if not block.bytes_read or block.data is None:
                return
            yield base64.b64decode(block.data)
            start += block.bytes_read


def _of_run(workspace: _Workspace, run_id: int) -> list[SourceFile]:
    """The logs of all clusters of a run, each below its id."""
    clusters = _clusters(workspace, workspace.run(run_id))
    if not clusters:
        raise NotFoundError(
            f"{workspace.where}: this run has no cluster: it has not begun, or it is serverless, "
            "where no logs are delivered"
        )
    found: list[SourceFile] = []
    without: list[StallscopeError] = []
    for cluster in clusters:
        try:
            found += _of_cluster(workspace, cluster, f"{cluster}/")
        except _NotDeliveredError as error:
            without.append(error)
    if not found:
        raise without[0]
    return found


def _clusters(workspace: _Workspace, run: Any) -> list[str]:
    """The clusters that a run's tasks have used, each once, also those of tasks that run in a loop."""
    tasks = [run, *(run.tasks or ())]
    for task in run.tasks or ():
        if task.for_each_task:
            tasks += workspace.run(task.run_id).iterations or ()
    used = [task.cluster_instance.cluster_id for task in tasks if task.cluster_instance]
    return [cluster for cluster in dict.fromkeys(used) if cluster]


def _of_cluster(workspace: _Workspace, cluster_id: str, prefix: str = "") -> list[SourceFile]:
    place = f"{_destination(workspace, cluster_id)}/{cluster_id}"
    try:
        if not place.startswith("s3"):
            return workspace.below(place, prefix)
        return [_prefixed(file, prefix) for file in S3Files(place).files()]
    except NotFoundError as error:
        raise _NotDeliveredError(
            f"{workspace.where}: nothing is at {place} yet; clusters deliver their logs every five "
            "minutes and when they end"
        ) from error


def _destination(workspace: _Workspace, cluster_id: str) -> str:
    """The folder or bucket that a cluster delivers to."""
    delivery = workspace.cluster(cluster_id).cluster_log_conf
    kinds = (delivery.volumes, delivery.dbfs, delivery.s3) if delivery else ()
    destination = next((str(kind.destination) for kind in kinds if kind), None)
    if destination is None:
        raise _NotDeliveredError(
            f"{workspace.where}: cluster {cluster_id} does not deliver its logs; set a destination "
            "under Advanced options, Logging (cluster_log_conf), before the next run"
        )
    return destination.rstrip("/")


def _prefixed(file: SourceFile, prefix: str) -> SourceFile:
    return SourceFile(prefix + file.name, file.where, file.size, file.version, file.reads)


def _path(place: str) -> str:
    """``dbfs:/a/b``, ``dbfs:///a/b`` and ``/Volumes/…`` as the SDK's calls take them."""
    return "/" + place.removeprefix("dbfs:").strip("/")


def _on_volume(path: str) -> bool:
    return path.startswith("/Volumes/")


def _client() -> WorkspaceClient:
    try:
        from databricks.sdk import WorkspaceClient
        from databricks.sdk.config import Config
    except ImportError as error:
        raise MissingExtraError("databricks", "the Databricks SDK") from error
    return WorkspaceClient(
        config=Config(
            product="stallscope", product_version=__version__, retry_timeout_seconds=_RETRY_SECONDS
        )
    )


@contextmanager
def _sentences(where: str, missing: str = "") -> Iterator[None]:
    """What the SDK raises as one sentence, without what it knows of credentials.

    Raises:
        NotFoundError: with ``missing``, where the workspace has no such thing.
        UnreadableError: for all else.
    """
    try:
        yield
    except StallscopeError:
        raise
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if missing and kinds & {"NotFound", "InvalidParameterValue"}:
            raise NotFoundError(f"{where}: {missing}") from error
        if kinds & {"Unauthenticated", "PermissionDenied"}:
            # Another attempt does not help.
            raise UnreadableError(f"{where}: {_refused(kinds, error)}") from PermissionError()
        raise UnreadableError(f"{where}: {_failed(kinds, error)}") from error


def _refused(kinds: set[str], error: Exception) -> str:
    if "Unauthenticated" in kinds:
        return f"the workspace refuses the credentials; {_CREDENTIALS}"
    # The SDK adds its settings, with which names of secrets come.
    said = reason(error).partition(". Config:")[0]
    return f"the workspace does not allow it: {said}"


def _failed(kinds: set[str], error: Exception) -> str:
    if "ValueError" in kinds:
        return f"no workspace and credentials are configured; {_CREDENTIALS}"
    if kinds & {"TimeoutError", "ConnectionError", "RequestException"}:
        return "the workspace does not answer; is DATABRICKS_HOST right?"
    return f"Databricks said: {reason(error)}"
