"""The latest figures of watched runs, to be scraped, or sent by OTLP."""

from __future__ import annotations

import hmac
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from stallscope import __version__
from stallscope.analysis import Analysis
from stallscope.errors import UsageError
from stallscope.formatting.numbers import finite
from stallscope.reports.formats.machine_formats import openmetrics_lines
from stallscope.reports.report_formats import Labels, Metric
from stallscope.reports.run.run_records import metrics

# Milliseconds between two deliveries, and the limit for the last one.
_INTERVAL_MS, _LAST_MS = 10_000, 10_000
# Longer than monitoring usually waits between two looks.
_KEPT_SECONDS = 600.0
_SILENT = "stallscope_silent_seconds"
_UNITS = {"seconds": "s", "ratio": "1", "bytes": "By"}

_PATH = "/metrics"
_HEALTH = "/health"
# Websites can point other names at this machine (DNS rebinding).
_HOSTS = ("127.0.0.1", "localhost")
_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class LatestFigures:
    """The figures of every run at its last look; several threads may use it.

    Those of completed runs are kept for ten minutes, so that all who ask now and then see the end.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        #: By the id of the run, then by the name of the figure.
        self._by_run: dict[str, dict[str, Metric]] = {}
        #: When completed runs are forgotten.
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()
        self._now = now

    def measured(self, analysis: Analysis, silent_s: float) -> None:
        """Replace the figures of a run.

        Args:
            silent_s: for how long no log of the run has grown.
        """
        run = analysis.run
        silent = (({"run_id": run.id}, silent_s),)
        title = "For how long no log of the open run has grown"
        figures = {metric.name: metric for metric in metrics(analysis)}
        figures[_SILENT] = Metric(_SILENT, title, silent, "seconds")
        with self._lock:
            self._by_run[run.id] = figures
            self._until.pop(run.id, None)
            if run.status == "completed":
                self._until[run.id] = self._now() + _KEPT_SECONDS

    def all(self) -> list[Metric]:
        """Return the figures of all runs, with the samples of one name together."""
        metrics = {name: metric for run in self._runs() for name, metric in run.items()}
        return [replace(metric, samples=self.samples(name)) for name, metric in metrics.items()]

    def samples(self, name: str) -> list[tuple[Labels, float | None]]:
        """Return the samples of one figure for all runs."""
        metrics = [run[name] for run in self._runs() if name in run]
        return [sample for metric in metrics for sample in metric.samples]

    def _runs(self) -> list[dict[str, Metric]]:
        """Return the figures of each run, without runs that completed long ago."""
        with self._lock:
            now = self._now()
            for run in [run for run, until in self._until.items() if until < now]:
                del self._until[run], self._by_run[run]
            return list(self._by_run.values())


# -- Send the latest figures over OTLP, with OpenTelemetry's library ------------------------------


@contextmanager
def sent(
    figures: LatestFigures, url: str, note: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Send figures regularly within the block, and a last time at its end.

    Yields a function to call when there are new figures.

    Args:
        url: the receiver of metrics, such as http://localhost:4318/v1/metrics.
        note: called with a sentence when the receiver fails.

    Raises:
        UsageError: if the library is missing, or the URL is invalid.
    """
    host = urlsplit(url).hostname
    if not url.lower().startswith(("http://", "https://")) or not host:
        raise UsageError("--otlp: this is not a URL; give http://HOST:4318/v1/metrics")
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
    except ImportError:
        raise UsageError("--otlp needs OpenTelemetry: pip install 'stallscope[otlp]'") from None
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=url), export_interval_millis=_INTERVAL_MS
    )
    about = Resource.create({"service.name": "stallscope", "service.version": __version__})
    provider = MeterProvider([reader], about, shutdown_on_exit=False)
    gauges = _Gauges(figures, provider.get_meter("stallscope"))
    with _noted_once(f"--otlp {host}: figures are not delivered", note):
        try:
            yield gauges.refresh
        finally:
            provider.shutdown(timeout_millis=_LAST_MS)


@contextmanager
def _noted_once(what: str, note: Callable[[str], None]) -> Iterator[None]:
    """Replace the library's warnings by one sentence, because they contain the whole URL."""
    logger, handler = logging.getLogger("opentelemetry"), _Once(what, note)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


class _Once(logging.Handler):
    """Notes only the first warning."""

    def __init__(self, what: str, note: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._what, self._note, self._noted = what, note, False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._noted:
            self._noted = True
            self._note(self._what)


class _Gauges:
    """A gauge for each name, which returns the latest samples on request."""

    def __init__(self, figures: LatestFigures, meter: Any) -> None:
        self._figures, self._meter = figures, meter
        self._known: set[str] = set()

    def refresh(self) -> None:
        """Make gauges of new names."""
        for metric in self._figures.all():
            if metric.name not in self._known:
                self._known.add(metric.name)
                unit = _UNITS.get(metric.unit, metric.unit)
                values = [self._values_of(metric.name)]
                self._meter.create_observable_gauge(metric.name, values, unit, metric.title)

    def _values_of(self, name: str) -> Callable[[Any], Iterator[Any]]:
        from opentelemetry.metrics import Observation

        def values(_options: Any) -> Iterator[Any]:
            for labels, value in self._figures.samples(name):
                known = finite(value)
                if known is not None:
                    yield Observation(known, dict(labels))

        return values


# -- Serve the latest figures as OpenMetrics, for Prometheus to scrape ----------------------------


@contextmanager
def served(figures: LatestFigures, host: str, port: int, token: str | None = None) -> Iterator[str]:
    """Serve figures within the block; yields the address.

    Args:
        host: a name or an IPv4 address of this machine.
        port: 0 takes any free one.
        token: the bearer token that requests must have; None only where no other machine reaches
            ``host``.

    Raises:
        UsageError: if host or port cannot be used.
    """
    try:
        server = ThreadingHTTPServer((_address(host), port), _handler(figures, token))
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


def _address(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError):
        raise UsageError(
            f"--metrics-host: {host!r} is not a name or address of this machine"
        ) from None


def _handler(figures: LatestFigures, token: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        # A scraper that stalls must not keep a thread for ever.
        timeout = 10

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == _HEALTH:
                # Whoever checks that it runs needs no token, and learns no more.
                self._answer("ok\n", "text/plain; charset=utf-8")
            elif token is None and self.headers.get("Host", "").rpartition(":")[0] not in _HOSTS:
                self.send_error(403, "ask for this machine by its address")
            elif token is not None and not self._has_token(token):
                self.send_error(401, "send the header Authorization: Bearer TOKEN")
            elif path != _PATH:
                self.send_error(404, f"figures are at {_PATH}")
            else:
                self._answer(openmetrics_lines(figures.all()), _TYPE)

        def _has_token(self, token: str) -> bool:
            given = self.headers.get("Authorization", "").encode("latin-1", "replace")
            return hmac.compare_digest(given, f"Bearer {token}".encode())

        def _answer(self, text: str, content_type: str) -> None:
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing: standard error is for the user's attention."""

    return Handler
