"""Write results to an MLflow run: tags, metrics and the report."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from pathlib import Path

from stallscope import __version__
from stallscope.analysis import Analysis
from stallscope.catalogue.entry import AnalysisSummary
from stallscope.collector.mlflow.client import MlflowRun, convert_errors
from stallscope.collector.sources.chunk_names import FOLDER

#: The name of the HTML report among the artifacts.
REPORT = "report.html"
#: The prefix of tags and metrics.
PREFIX = "stallscope."
#: The value of a tag without a result; it replaces an older value.
NONE = "none"


def write_summary(analysis: Analysis, run_id: str, *, report: Path | None = None) -> None:
    """Add the verdict to a run as tags, the figures as metrics, and the report as an artifact.

    A second call replaces tags and report, and adds a later value to each metric.

    Args:
        analysis: of the run's logs.
        run_id: the MLflow run.
        report: the HTML report, for the run's artifacts.

    Raises:
        MissingExtraError: without mlflow.
        NotFoundError: if there is no such run.
        UnreadableError: if the server cannot be reached, or refuses the results.
    """
    run = MlflowRun(run_id)
    from mlflow.entities import Metric, RunTag

    if report is not None:
        with tempfile.TemporaryDirectory(prefix="stallscope-") as folder:
            named = Path(folder) / REPORT
            shutil.copy(report, named)
            run.upload(named, FOLDER)
    now = round(time.time() * 1000)
    figures = {name: value for name, value in metrics(analysis).items() if math.isfinite(value)}
    texts = tags(analysis) | ({"report": f"{FOLDER}/{REPORT}"} if report is not None else {})
    with convert_errors(run.where):
        run.client.log_batch(
            run_id,
            metrics=[Metric(PREFIX + name, value, now, 0) for name, value in figures.items()],
            tags=[RunTag(PREFIX + name, value) for name, value in texts.items()],
        )


def tags(analysis: Analysis) -> dict[str, str]:
    """Return the values to search for, without the prefix."""
    bottleneck = analysis.bottleneck
    return {
        "bottleneck": bottleneck.kind,
        "cause": bottleneck.cause or NONE,
        "fault": _yes(bottleneck.fault),
        "ranks": ",".join(map(str, bottleneck.ranks)) or NONE,
        "hosts": ",".join(bottleneck.hosts) or NONE,
        "evidence": bottleneck.evidence or NONE,
        "run": analysis.run.id,
        "synthetic": _yes(analysis.run.synthetic),
        "version": __version__,
    }


def metrics(analysis: Analysis) -> dict[str, float]:
    """Return the figures to chart and compare, without the prefix; unknown figures are left out."""
    tokens = analysis.tokens_per_second
    figures: dict[str, float | None] = {
        "size": analysis.run.size,
        "samples_per_second": analysis.samples_per_second,
        "tokens_per_second": None if tokens is None else tokens.value,
        "gap": analysis.gap,
    }
    figures |= {
        f"{name}_share": share for name, share in AnalysisSummary.of(analysis).shares.items()
    }
    if analysis.step is not None:
        figures["step_ms_mean"] = analysis.step.mean
        figures["step_ms_p95"] = analysis.step.p95
    return {name: float(value) for name, value in figures.items() if value is not None}


def _yes(known: bool) -> str:
    return "true" if known else "false"
