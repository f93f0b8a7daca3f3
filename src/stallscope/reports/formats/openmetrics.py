"""OpenMetrics 1.0 for Prometheus and other readers of its format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stallscope.formatting.numbers import finite
from stallscope.formatting.plain import plain

from ..base import Metric, ReportOptions, ReportParts


def openmetrics_text(parts: ReportParts, _options: ReportOptions) -> str:
    """Write the figures of a report."""
    assert parts.metrics is not None
    return openmetrics_lines(parts.metrics())


def openmetrics_lines(metrics: Iterable[Metric]) -> str:
    """Write one family per metric. A metric without known samples is left out."""
    lines = [line for metric in metrics for line in _lines(metric)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _lines(metric: Metric) -> Iterator[str]:
    known = [(labels, finite(value)) for labels, value in metric.samples]
    samples = [(labels, value) for labels, value in known if value is not None]
    if not samples:
        return
    yield f"# TYPE {metric.name} {metric.kind}"
    if metric.unit:
        yield f"# UNIT {metric.name} {metric.unit}"
    yield f"# HELP {metric.name} {metric.title}."
    suffix = "_info" if metric.kind == "info" else ""
    for labels, value in samples:
        text = ",".join(f'{name}="{_label(label)}"' for name, label in labels.items())
        yield f"{metric.name}{suffix}{{{text}}} {float(value)!r}"


def _label(text: str) -> str:
    """Escape a label as the format requires; characters that cannot be seen are written out."""
    return plain(text).replace("\\", "\\\\").replace('"', '\\"')
