"""Files in HDFS.

webhdfs://user@namenode:9870/path    over HTTP, which needs nothing of Hadoop here
hdfs://namenode:8020/path            with Hadoop's own library, where it is installed
"""

from __future__ import annotations

import getpass
import os
from functools import cache
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import fsspec

from .files import SILENT, Files

_LIBRARIES = ("libhdfs", "libjvm")
_UNAUTHORIZED = 401


class HdfsFiles(Files):
    """Files of one cluster, through libhdfs, which finds the user's own configuration and tickets."""

    def _said(self, error: BaseException) -> str:
        said = super()._said(error)
        if not any(library in said for library in _LIBRARIES):
            return said
        return (
            "Hadoop's libhdfs is not here; write webhdfs://USER@NAMENODE:9870/path, which does without "
            "it, or set HADOOP_HOME, JAVA_HOME and CLASSPATH on a machine that has Hadoop"
        )


class WebHdfsFiles(Files):
    """Files of one cluster, over HTTP from the namenode and its datanodes, or from an HttpFS."""

    meanings = MappingProxyType(
        {
            **SILENT,
            "PermissionError": (
                "access is refused ({said}); name another user before the host, or in HADOOP_USER_NAME"
            ),
            "ConnectionError": (
                "no WebHDFS answers there; the namenode's HTTP port is 9870, or 50070 before Hadoop 3"
            ),
        }
    )

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _web_hdfs(self.attempts, self.patience_seconds)

    def _options(self) -> dict[str, Any]:
        if urlsplit(self._text).username:
            return super()._options()
        # As Hadoop's own clients do.
        user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        return {**super()._options(), "user": user}

    def _bytes(
        self, file_system: fsspec.AbstractFileSystem, path: str, start: int, end: int | None
    ) -> bytes:
        if end is not None and end <= start:
            return b""
        part = {"offset": start} if end is None else {"offset": start, "length": end - start}
        # fsspec's own way of reading takes what a datanode says of an error for the file.
        return bytes(file_system._call("OPEN", path=path, **part).content)

    def _said(self, error: BaseException) -> str:
        if getattr(getattr(error, "response", None), "status_code", None) != _UNAUTHORIZED:
            return super()._said(error)
        return (
            "it asks for a login; where that is Kerberos, use hdfs:// on a machine with Hadoop and a "
            "ticket, or copy the logs with 'hdfs dfs -get'"
        )


@cache
def _web_hdfs(attempts: int, patience_seconds: float) -> type[fsspec.AbstractFileSystem]:
    from fsspec.implementations.webhdfs import WebHDFS
    from requests import PreparedRequest, Response
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    class Patient(HTTPAdapter):
        def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
            options["timeout"] = patience_seconds
            return super().send(request, *args, **options)

    class Cluster(WebHDFS):  # type: ignore[misc]  # fsspec ships no types
        def _connect(self) -> None:
            super()._connect()
            # Otherwise it would wait for ever, and ask once.
            patient = Patient(max_retries=Retry(attempts - 1, backoff_factor=1))
            for scheme in ("http://", "https://"):
                self.session.mount(scheme, patient)

    return Cluster
