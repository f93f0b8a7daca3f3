"""A fake Databricks workspace: the calls of its API that collecting makes.

Databricks has no server to run locally, so this replaces it. It answers Databricks' own SDK over HTTP as
documented in the API's reference; paths, parameters and errors are as correct as the SDK can check.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from .local_servers import QuietHandler, serving

TOKEN = "dapi-a-token-that-no-message-may-hold"
_DIRECTORIES = "/api/2.0/fs/directories"
_FILES = "/api/2.0/fs/files"
_MOST_BYTES = 1 << 20


class RefusedError(Exception):
    """An error answer, in the API's format."""

    def __init__(self, status: HTTPStatus, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error_code": code, "message": message}


@dataclass
class Workspace:
    """The content of a workspace."""

    host: str = ""
    #: By path: ``/cluster-logs/…`` on DBFS, ``/Volumes/…`` on a volume.
    files: dict[str, bytes] = field(default_factory=dict)
    clusters: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[int, dict[str, Any]] = field(default_factory=dict)
    #: Paths with this prefix cannot be read.
    locked: str = "/none"
    #: Whether it supports ranges of bytes, as the API's reference documents.
    ranges: bool = True
    #: Every request: method, path, range.
    asked: list[tuple[str, str, str]] = field(default_factory=list)

    def put(self, folder: Path, path: str) -> None:
        """Copy a folder's files to below a path."""
        for file in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
            self.files[f"{path}/{file.relative_to(folder)}"] = file.read_bytes()

    def below(self, folder: str) -> dict[str, bool]:
        """Return a folder's content: by name, whether it is a folder."""
        names = {}
        for path in self.files:
            if path.startswith(folder.rstrip("/") + "/"):
                name, slash, _ = path[len(folder.rstrip("/")) + 1 :].partition("/")
                names[name] = bool(slash)
        return names

    def checked(self, path: str) -> str:
        """Return a path that exists and is readable.

        Raises:
            RefusedError: if not.
        """
        if path.startswith(self.locked):
            raise RefusedError(HTTPStatus.FORBIDDEN, "PERMISSION_DENIED", f"No READ on {path}")
        if path not in self.files and not self.below(path):
            raise RefusedError(HTTPStatus.NOT_FOUND, "RESOURCE_DOES_NOT_EXIST", f"No file {path}")
        return path


@contextmanager
def workspace() -> Iterator[Workspace]:
    """Run a workspace for the duration of the block."""
    held = Workspace()
    with serving(_Handler, held=held) as port:
        held.host = f"http://127.0.0.1:{port}"
        yield held


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    held: Workspace

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        words = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.held.asked.append((self.command, unquote(parts.path), self.headers.get("Range", "")))
        try:
            # The SDK requests the host's description before it has credentials.
            known = not parts.path.startswith("/.well-known/")
            if known and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise RefusedError(
                    HTTPStatus.UNAUTHORIZED, "UNAUTHENTICATED", "Invalid access token."
                )
            self._send(*self._reply(unquote(parts.path), words))
        except RefusedError as refused:
            self._send(refused.status, json.dumps(refused.body).encode())

    def _send(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _reply(self, path: str, words: dict[str, str]) -> tuple[HTTPStatus, bytes]:
        if path.startswith(_FILES):
            return self._file(self.held.checked(path.removeprefix(_FILES)))
        if path.startswith(_DIRECTORIES):
            return HTTPStatus.OK, json.dumps(self._folder(path.removeprefix(_DIRECTORIES))).encode()
        calls = {
            "/api/2.2/jobs/runs/get": self._run,
            "/api/2.1/clusters/get": self._cluster,
            "/api/2.0/dbfs/get-status": self._status,
            "/api/2.0/dbfs/list": self._listed,
            "/api/2.0/dbfs/read": self._block,
        }
        if path not in calls:
            raise RefusedError(
                HTTPStatus.NOT_FOUND, "ENDPOINT_NOT_FOUND", f"No API found for {path}"
            )
        return HTTPStatus.OK, json.dumps(calls[path](words)).encode()

    def _run(self, words: dict[str, str]) -> dict[str, Any]:
        run = self.held.runs.get(int(words["run_id"]))
        if run is None:
            message = f"Run {words['run_id']} does not exist."
            raise RefusedError(HTTPStatus.BAD_REQUEST, "INVALID_PARAMETER_VALUE", message)
        return {"run_id": int(words["run_id"]), **run}

    def _cluster(self, words: dict[str, str]) -> dict[str, Any]:
        cluster = self.held.clusters.get(words["cluster_id"])
        if cluster is None:
            message = f"Cluster {words['cluster_id']} does not exist"
            raise RefusedError(HTTPStatus.BAD_REQUEST, "INVALID_PARAMETER_VALUE", message)
        return {"cluster_id": words["cluster_id"], **cluster}

    def _status(self, words: dict[str, str]) -> dict[str, Any]:
        return self._info(self.held.checked(words["path"]))

    def _listed(self, words: dict[str, str]) -> dict[str, Any]:
        folder = self.held.checked(words["path"])
        paths = [f"{folder.rstrip('/')}/{name}" for name in self.held.below(folder)]
        return {"files": [self._info(path) for path in paths]}

    def _info(self, path: str) -> dict[str, Any]:
        data = self.held.files.get(path)
        size = len(data or b"")
        return {"path": path, "is_dir": data is None, "file_size": size, "modification_time": 1000}

    def _block(self, words: dict[str, str]) -> dict[str, Any]:
        data = self.held.files[self.held.checked(words["path"])]
        start, length = int(words.get("offset", 0)), int(words.get("length", 500_000))
        if length > _MOST_BYTES:
            raise RefusedError(
                HTTPStatus.BAD_REQUEST, "MAX_READ_SIZE_EXCEEDED", "Reads are 1 MB at most"
            )
        block = data[start : start + length]
        return {"bytes_read": len(block), "data": base64.b64encode(block).decode()}

    def _folder(self, folder: str) -> dict[str, Any]:
        if folder in self.held.files or not self.held.below(self.held.checked(folder)):
            raise RefusedError(HTTPStatus.NOT_FOUND, "NOT_FOUND", f"No directory {folder}")
        entries = []
        for name, is_folder in self.held.below(folder).items():
            path = f"{folder.rstrip('/')}/{name}"
            entry = {"name": name, "path": path, "is_directory": is_folder, "last_modified": 1000}
            size = {} if is_folder else {"file_size": len(self.held.files[path])}
            entries.append({**entry, **size})
        return {"contents": entries}

    def _file(self, path: str) -> tuple[HTTPStatus, bytes]:
        if path not in self.held.files:
            raise RefusedError(HTTPStatus.NOT_FOUND, "NOT_FOUND", f"No file {path}")
        data = self.held.files[path]
        asked = self.headers.get("Range")
        if asked is None or not self.held.ranges:
            return HTTPStatus.OK, data
        first, last = asked.removeprefix("bytes=").split("-")
        return HTTPStatus.PARTIAL_CONTENT, data[int(first) : int(last) + 1]
