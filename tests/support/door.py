"""A proxy before a real server: it forwards requests, and changes or delays answers for a test.

For slow and silent answers, it puts forward the clock of fsspec's clients in this process, which ends
their patience at once. So a client's time-out can be longer than any machine takes for other answers.
"""

from __future__ import annotations

import asyncio
import http.client
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from email.message import Message
from functools import cache
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from fsspec.asyn import get_loop

from .local_servers import LocalServer
from .waiting import PATIENCE_SECONDS

#: A status and a body for the proxy's own answer.
Answer = tuple[int, bytes]
#: A time-out for clients of slow and silent answers; no machine takes as long for any other.
TIMEOUT_SECONDS = 1000
# For one connection only; the body's length is what the proxy sends.
_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


@dataclass(frozen=True)
class Request:
    """A client's request."""

    method: str
    path: str
    headers: Message
    body: bytes


class ClientClock:
    """The clock of fsspec's clients: of the event loop that all of them run in. It only goes forward."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ahead = 0.0
        loop.time = lambda: time.monotonic() + self._ahead  # type: ignore[method-assign]

    def put_forward(self, seconds: float, connection: socket.socket) -> None:
        """Let time pass for a client that waits for an answer."""
        done = threading.Event()

        def pass_time() -> None:
            # In the clients' thread, where a client that has given up may already wait for another
            # answer: the connections of such clients are closed.
            if not select.select([connection], [], [], 0)[0]:
                self._ahead += seconds
            done.set()

        self._loop.call_soon_threadsafe(pass_time)
        done.wait()


@cache
def _client_clock() -> ClientClock:
    return ClientClock(get_loop())


@dataclass
class Door:
    """The proxy's behaviour; tests change it while it is open."""

    url: str
    #: Passes while the proxy is slow or silent.
    clock: ClientClock
    #: Returns an answer instead of the server's; None forwards the request.
    answers: Callable[[Request], Answer | None] = lambda request: None
    #: Returns whether the answer to this request is slow or stops.
    concerns: Callable[[Request], bool] = lambda request: False
    #: The body is sent in so many pieces, with so many seconds of the clients' clock before each.
    pieces: int = 1
    pause: float = 0.0
    #: Nothing comes after so many pieces; with 0 there is no answer at all.
    stops_after: int | None = None
    #: Every request.
    asked: list[Request] = field(default_factory=list)
    #: Ends all waiting.
    closed: threading.Event = field(default_factory=threading.Event)


@contextmanager
def door(server: str, port: int = 0) -> Iterator[Door]:
    """Run a proxy before a server for the duration of the block.

    Args:
        server: its URL.
        port: the proxy's; 0 is any free one.
    """
    handler = type("Handler", (_Handler,), {"server_url": server})
    front = LocalServer(("127.0.0.1", port), handler)
    opened = handler.door = Door(f"http://127.0.0.1:{front.server_port}", _client_clock())
    thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield opened
    finally:
        opened.closed.set()
        front.shutdown()
        thread.join()
        front.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_url: str
    door: Door
    protocol_version = "HTTP/1.1"
    # A piece is there before the clients' clock passes again.
    disable_nagle_algorithm = True

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        if self.door.closed.is_set():
            # A client has kept its connection.
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, self.path, self.headers, body)
        self.door.asked.append(request)
        answer = self.door.answers(request)
        if answer is None:
            self._pass_on(request)
        else:
            self._send(answer[0], {"Content-Type": "application/json"}, answer[1])

    def _pass_on(self, request: Request) -> None:
        concerned = self.door.concerns(request)
        if concerned and self.door.stops_after == 0:
            self._fall_silent()
            return
        server = http.client.HTTPConnection(
            urlsplit(self.server_url).netloc, timeout=PATIENCE_SECONDS
        )
        with closing(server):
            # Unchanged, also the host's name: they may be signed.
            headers = dict(request.headers.items())
            server.request(request.method, request.path, request.body or None, headers)
            answer = server.getresponse()
            headers = {
                name: value for name, value in answer.getheaders() if name.lower() not in _HOP
            }
            if request.method == "HEAD":
                headers["Content-Length"] = answer.getheader("Content-Length") or "0"
            self._send(answer.status, headers, answer.read(), concerned)

    def _send(
        self, status: int, headers: dict[str, str], body: bytes, concerned: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if not concerned:
            self.wfile.write(body)
            return
        size = -(-len(body) // self.door.pieces)
        for number in range(self.door.pieces):
            if number == self.door.stops_after:
                self._fall_silent()
                return
            if self.door.pause:
                self.door.clock.put_forward(self.door.pause, self.connection)
            self.wfile.write(body[number * size : (number + 1) * size])

    def _fall_silent(self) -> None:
        self.close_connection = True
        # The loop first reads what was sent until now, and only then waits for more.
        for seconds in (0, 0, 2 * TIMEOUT_SECONDS):
            self.door.clock.put_forward(seconds, self.connection)
        self.door.closed.wait()
