"""Read files in HDFS.

webhdfs://user@namenode:9870/path    over HTTP, without Hadoop on this machine
hdfs://namenode:8020/path            with Hadoop's library, if it is installed
"""

from __future__ import annotations

import getpass
import os
from functools import cache
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import fsspec

from .files import TIMEOUTS, Files

_LIBRARIES = ("libhdfs", "libjvm")
_UNAUTHORIZED = 401


class HdfsFiles(Files):
    """Files of a cluster, through libhdfs, which finds the user's configuration and tickets."""

    def describe_error(self, error: BaseException) -> str:
        message = super().describe_error(error)
        if not any(library in message for library in _LIBRARIES):
            return message
        return (
            "Hadoop's libhdfs is missing; write webhdfs://USER@NAMENODE:9870/path, which does not need "
            "it, or set HADOOP_HOME, JAVA_HOME and CLASSPATH on a machine that has Hadoop"
        )


class WebHdfsFiles(Files):
    """Files of a cluster, over HTTP from the namenode and its datanodes, or from an HttpFS."""

    error_messages = MappingProxyType(
        {
            **TIMEOUTS,
            "PermissionError": (
                "access denied ({error}); name another user before the host, or in HADOOP_USER_NAME"
            ),
            "ConnectionError": (
                "no WebHDFS answers there; the namenode's HTTP port is 9870, or 50070 before Hadoop 3"
            ),
        }
    )

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _web_hdfs(self.attempts, self.timeout_seconds)

    def _options(self) -> dict[str, Any]:
        if urlsplit(self._text).username:
            return super()._options()
        # Hadoop's clients choose the user in this order.
        user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        return {**super()._options(), "user": user}

    def _bytes(
        self, file_system: fsspec.AbstractFileSystem, path: str, start: int, end: int | None
    ) -> bytes:
        if end is not None and end <= start:
            return b""
        part = {"offset": start} if end is None else {"offset": start, "length": end - start}
        # fsspec's reader would return a datanode's error message as the file.
        return bytes(file_system._call("OPEN", path=path, **part).content)

    def describe_error(self, error: BaseException) -> str:
        if getattr(getattr(error, "response", None), "status_code", None) != _UNAUTHORIZED:
            return super().describe_error(error)
        return (
            "it requires a login; for Kerberos, use hdfs:// on a machine with Hadoop and a "
            "ticket, or copy the logs with 'hdfs dfs -get'"
        )


@cache
def _web_hdfs(attempts: int, timeout_seconds: float) -> type[fsspec.AbstractFileSystem]:
    from fsspec.implementations.webhdfs import WebHDFS
    from requests import PreparedRequest, Response
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    class TimeoutAdapter(HTTPAdapter):
        def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
            options["timeout"] = timeout_seconds
            return super().send(request, *args, **options)

    class Cluster(WebHDFS):  # type: ignore[misc]  # fsspec ships no types
        def _connect(self) -> None:
            super()._connect()
            # By default, the session has no timeout and tries once.
            adapter = TimeoutAdapter(max_retries=Retry(attempts - 1, backoff_factor=1))
            for scheme in ("http://", "https://"):
                self.session.mount(scheme, adapter)

    return Cluster
