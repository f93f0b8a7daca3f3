"""A receiver of notifications, which may refuse them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from .local_servers import QuietHandler, serving


@dataclass
class Receiver:
    """The requests to a receiver."""

    url: str = ""
    #: The statuses of its next answers; later ones are 204.
    answers: list[int] = field(default_factory=list)
    #: All requests: path and login.
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    #: The accepted notifications.
    accepted: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def receiver(*answers: int) -> Iterator[Receiver]:
    """Receive notifications for the duration of the block.

    Args:
        answers: the statuses of the first answers.
    """
    server = Receiver(answers=list(answers))
    with serving(_Handler, receiver=server) as port:
        server.url = f"http://127.0.0.1:{port}/hook"
        yield server


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    receiver: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.receiver.requests.append((self.path, self.headers.get("Authorization")))
        status = self.receiver.answers.pop(0) if self.receiver.answers else 204
        if status == 204:
            self.receiver.accepted.append(json.loads(body))
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()
