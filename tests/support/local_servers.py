"""HTTP servers on this machine that replace services that cannot run locally."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LocalServer(ThreadingHTTPServer):
    """A server that ends with its test, and prints nothing about clients that leave early."""

    daemon_threads = True
    # Many clients connect at once; a rejected one would wait for seconds before it retries.
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A traceback would be among the lines that a command prints, which tests count.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


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
    server = LocalServer(("127.0.0.1", 0), type("Handler", (handler,), attributes))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
