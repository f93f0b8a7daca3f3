"""A web server with the limits of real ones: many report no lengths, and many serve whole files only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from .local_servers import QuietHandler, serving

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass
class Web:
    """The server's files and behaviour; tests change them while it runs."""

    url: str = ""
    #: The files by name.
    files: dict[str, bytes] = field(default_factory=dict)
    #: Whether it reports a file's length; if not, files come in chunks.
    sized: bool = False
    #: The length that HEAD reports instead of the file's; None reports nothing.
    head: int | None = None
    #: Whether it serves parts of files.
    parts: bool = False
    #: The connection breaks after so many bytes.
    breaks_at: int | None = None
    #: Each file is sent so many times in a row, endless for a client.
    times: int = 1
    #: The status of all answers, to refuse everything.
    refuses: int | None = None
    #: The names of files that it lists, and denies.
    denied: tuple[str, ...] = ()
    #: Every request: the method, the name, and the range.
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)


@contextmanager
def web(**how: object) -> Iterator[Web]:
    """Run a server on this machine for the duration of the block."""
    served = Web(**how)  # type: ignore[arg-type]
    with serving(_Handler, served=served) as port:
        served.url = f"http://127.0.0.1:{port}"
        yield served


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    served: Web

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(None)

    def _answer(self, body: bytes | None) -> None:
        name = urlsplit(self.path).path.lstrip("/")
        self.served.asked.append((self.command, name, self.headers.get("Range")))
        data = self.served.files.get(name)
        status = self.served.refuses or (404 if data is None else 200)
        if name in self.served.denied:
            status = 403
        if status != 200:
            self._plain(status, b"<html>no</html>", body is None)
        elif name.endswith((".html", "/")) or not name:
            self._plain(200, data or b"", body is None)
        else:
            assert data is not None
            self._file(data * self.served.times, body is None)

    def _plain(self, status: int, data: bytes, body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if body else b"")

    def _file(self, data: bytes, body: bool) -> None:
        wanted = _RANGE.fullmatch(self.headers.get("Range") or "") if self.served.parts else None
        start, end = 0, len(data)
        if wanted is not None:
            start, end = int(wanted[1]), min(int(wanted[2] or end) + 1, end)
        if start >= len(data) and wanted is not None:
            self._plain(416, b"", body)
            return
        self.send_response(200 if wanted is None else 206)
        self.send_header("Content-Type", "application/octet-stream")
        if wanted is not None:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        if self.served.sized:
            self.send_header("Content-Length", str(end - start))
        elif body:
            self.send_header("Transfer-Encoding", "chunked")
        elif self.served.head is not None:
            self.send_header("Content-Length", str(self.served.head))
        self.end_headers()
        if body:
            self._send(data[start:end])

    def _send(self, data: bytes) -> None:
        breaks_at = self.served.breaks_at
        size = 1000
        for at in range(0, len(data), size):
            if breaks_at is not None and at >= breaks_at:
                self.close_connection = True
                return
            piece = data[at : at + size]
            try:
                self.wfile.write(
                    piece if self.served.sized else b"%x\r\n%s\r\n" % (len(piece), piece)
                )
            except OSError:
                # The client has stopped reading.
                self.close_connection = True
                return
        if not self.served.sized:
            self.wfile.write(b"0\r\n\r\n")
