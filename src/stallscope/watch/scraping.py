"""Serve the latest figures as OpenMetrics, for Prometheus to scrape."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stallscope.errors import UsageError
from stallscope.reports.formats.openmetrics import openmetrics_lines

from .latest import LatestFigures

_PATH = "/metrics"
# Websites can point other names at this machine (DNS rebinding).
_HOSTS = ("127.0.0.1", "localhost")
_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@contextmanager
def served(figures: LatestFigures, host: str, port: int) -> Iterator[str]:
    """Serve figures within the block; yields the address.

    Raises:
        UsageError: if the port cannot be used.
    """
    try:
        server = ThreadingHTTPServer((host, port), _handler(figures))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--metrics-port {port}: {reason}; give another port") from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}{_PATH}"
    finally:
        server.shutdown()
        server.server_close()


def _handler(figures: LatestFigures) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # A scraper that stalls must not keep a thread for ever.
        timeout = 10

        def do_GET(self) -> None:
            if self.headers.get("Host", "").rpartition(":")[0] not in _HOSTS:
                self.send_error(403, "ask for this machine by its address")
                return
            if self.path.partition("?")[0] != _PATH:
                self.send_error(404, f"figures are at {_PATH}")
                return
            body = openmetrics_lines(figures.all()).encode()
            self.send_response(200)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing: standard error is for the user's attention."""

    return Handler
