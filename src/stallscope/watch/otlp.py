"""Send the latest figures over OTLP, with OpenTelemetry's library."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from stallscope import __version__
from stallscope.errors import UsageError
from stallscope.formatting.numbers import finite

from .latest import LatestFigures

# Milliseconds between two deliveries, and the limit for the last one.
_INTERVAL_MS, _LAST_MS = 10_000, 10_000
_UNITS = {"seconds": "s", "ratio": "1", "bytes": "By"}


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
