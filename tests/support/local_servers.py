"""HTTP servers on this machine that replace services that cannot run locally."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that leave early."""


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections open and prints nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[QuietHandler], **attributes: object) -> Iterator[int]:
    """Serve on a free port for the duration of the block, and return the port.

    Args:
        handler: answers the requests.
        attributes: set on the handler's class, for what its requests share.
    """
    server = _Server(("127.0.0.1", 0), type("Handler", (handler,), attributes))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
