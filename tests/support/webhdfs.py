"""A fake HDFS cluster: the calls of WebHDFS that collecting makes.

Hadoop's namenode is in no package of PyPI, npm or Debian, so this replaces it. It answers over HTTP as
documented in the reference of WebHDFS: a namenode that redirects readers to a datanode, users and
permissions, and errors in the form of Hadoop's exceptions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from .local_servers import QuietHandler, serving

_PREFIX = "/webhdfs/v1"
_DATANODE = "/datanode"


class RemoteError(Exception):
    """An error answer, in Hadoop's format."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"RemoteException": {"exception": kind, "message": message}}


@dataclass
class Cluster:
    """The content of a cluster, and who may read it."""

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    #: When a file was last written; each time is later than the one before.
    times: dict[str, int] = field(default_factory=dict)
    #: The only user with read permission.
    user: str = "train"
    #: Whether its datanodes have lost files that the namenode lists.
    lost: bool = False
    #: Whether it requires a Kerberos ticket.
    kerberos: bool = False
    #: Every request to the namenode: user, operation, path, offset.
    asked: list[tuple[str, str, str, int]] = field(default_factory=list)

    def put(self, folder: Path, path: str) -> None:
        """Copy a folder's files to below a path."""
        for file in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
            self.write(f"{path}/{file.relative_to(folder)}", file.read_bytes())

    def write(self, path: str, data: bytes) -> None:
        self.files[path] = data
        self.times[path] = 1_795_000_000_000 + len(self.times) + 1000 * self.times.get(path, 0)

    def below(self, folder: str) -> set[str]:
        """List the names in a folder."""
        prefix = folder.rstrip("/") + "/"
        inside = [path for path in self.files if path.startswith(prefix)]
        return {path.removeprefix(prefix).partition("/")[0] for path in inside}

    def status(self, path: str, name: str = "") -> dict[str, Any]:
        """Return the namenode's status of a file or folder.

        Raises:
            RemoteError: if it is not there.
        """
        if path in self.files:
            size, time = len(self.files[path]), self.times[path]
            known = {"type": "FILE", "length": size, "modificationTime": time}
        elif self.below(path):
            known = {"type": "DIRECTORY", "length": 0, "modificationTime": 0}
        else:
            raise RemoteError(404, "FileNotFoundException", f"File does not exist: {path}")
        return {"pathSuffix": name, "owner": self.user, "permission": "600", **known}

    def listed(self, path: str) -> list[dict[str, Any]]:
        if self.status(path)["type"] == "FILE":
            return [self.status(path)]
        return [self.status(f"{path.rstrip('/')}/{name}", name) for name in self.below(path)]


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run a cluster for the duration of the block."""
    held = Cluster()
    with serving(_Handler, held=held) as port:
        held.port = port
        yield held


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    held: Cluster

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        words = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = unquote(parts.path)
        try:
            if path.startswith(_DATANODE):
                self._send(200, self._block(path.removeprefix(_DATANODE), words))
            else:
                self._answer(path.removeprefix(_PREFIX), words)
        except RemoteError as error:
            self._send(error.status, json.dumps(error.body).encode())

    def _answer(self, path: str, words: dict[str, str]) -> None:
        user, operation = words.get("user.name", "dr.who"), words["op"]
        self.held.asked.append((user, operation, path, int(words.get("offset", 0))))
        if self.held.kerberos:
            self._send(401, b"<html>Authentication required</html>", "WWW-Authenticate: Negotiate")
            return
        if user != self.held.user:
            message = f"Permission denied: user={user}, access=READ, inode={path}"
            raise RemoteError(403, "AccessControlException", message)
        if operation == "OPEN":
            self.held.status(path)
            here = f"http://127.0.0.1:{self.held.port}{_DATANODE}"
            self._send(307, b"", f"Location: {here}{self.path.removeprefix(_PREFIX)}")
        elif operation == "LISTSTATUS":
            self._send_json({"FileStatuses": {"FileStatus": self.held.listed(path)}})
        else:
            self._send_json({"FileStatus": self.held.status(path)})

    def _block(self, path: str, words: dict[str, str]) -> bytes:
        if self.held.lost:
            raise RemoteError(403, "BlockMissingException", f"Could not obtain block of {path}")
        data, offset = self.held.files[path], int(words["offset"])
        if offset >= len(data) > 0:
            message = f"Offset={offset} out of the range [0, {len(data)}); OPEN, path={path}"
            raise RemoteError(403, "IOException", message)
        return data[offset : offset + int(words.get("length", len(data)))]

    def _send_json(self, content: dict[str, Any]) -> None:
        self._send(200, json.dumps(content).encode())

    def _send(self, status: int, body: bytes, header: str = "") -> None:
        self.send_response(status)
        if header:
            name, _, value = header.partition(": ")
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
