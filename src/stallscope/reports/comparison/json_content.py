"""The JSON of compared runs, which docs/compare.schema.json describes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from stallscope.analysis import Analysis
from stallscope.analysis.history.comparison import Change, Comparison, Difference
from stallscope.analysis.history.regression import Figure, History, LastingChange, Rerun
from stallscope.arrays.stats import Mean

from ..content import SCHEMA_VERSION, Content, valid
from ..run import json_content as run_content
from .compared import Compared
from .histories import headline
from .sentences import caveats, outcome


def json_content(compared: Compared) -> Content:
    """Return one object; unknown values are None."""
    pair = compared.pair
    content: Content = valid(
        {
            "schema_version": SCHEMA_VERSION,
            "pair": None if pair is None else _pair(pair),
            "histories": [_history(one) for one in compared.histories],
        }
    )
    return content


def _pair(pair: Comparison) -> dict[str, Any]:
    words, sentence = outcome(pair)
    return {
        "outcome": words,
        "sentence": sentence,
        "same_run": pair.same_run,
        "runs": [_run(pair.first), _run(pair.second)],
        "speedup": _mean(pair.speedup),
        "step": None if pair.step is None else _change(pair.step),
        "by_cause": [_change(one) for one in pair.by_cause],
        "ledger": [_change(one) for one in pair.entries],
        "differences": [_difference(one) for one in pair.differences],
        "caveats": caveats(pair),
    }


def _run(analysis: Analysis) -> dict[str, Any]:
    """Return the run as the report of one run has it."""
    whole = run_content(analysis)
    names = ("id", "name", "source", "size", "steps", "synthetic", "started_at")
    verdict = whole["bottleneck"]
    return {
        **{name: whole["run"][name] for name in names},
        "bottleneck": {name: verdict[name] for name in ("kind", "cause", "ranks", "hosts")},
    }


def _change(one: Change) -> dict[str, Any]:
    return {
        "name": one.name,
        "first_ms": _mean(one.first),
        "second_ms": _mean(one.second),
        "by_ms": _mean(one.by),
        "more_than_noise": one.is_real,
    }


def _mean(mean: Mean | None) -> dict[str, Any] | None:
    return None if mean is None else {"value": mean.value, "ci95": mean.ci95}


def _difference(one: Difference) -> dict[str, Any]:
    return {"fact": one.name, "first": _plain(one.first), "second": _plain(one.second)}


def _plain(value: Any) -> Any:
    """Convert a fact of a log to JSON."""
    return json.loads(json.dumps(value, default=str))


def _history(history: History) -> dict[str, Any]:
    run = history.runs[0].analysis.run
    return {
        "job": history.name,
        "size": run.size,
        "synthetic": run.synthetic,
        "headline": headline(history),
        "runs": [_rerun(one) for one in history.runs],
        "figures": [_figure(one, history.runs) for one in history.figures],
        "warnings": history.warnings,
    }


def _rerun(one: Rerun) -> dict[str, Any]:
    return {
        **_run(one.analysis),
        "differences": [_difference(difference) for difference in one.differences],
    }


def _figure(figure: Figure, runs: Sequence[Rerun]) -> dict[str, Any]:
    trend = figure.trend
    return {
        "name": figure.name,
        "unit": "samples/s" if figure.name == "samples_per_second" else "ms",
        "status": figure.status,
        "why": figure.why or None,
        "values": [_mean(mean) for mean in figure.values],
        "changes": [_lasting(change, runs) for change in figure.changes],
        "trend": None if trend is None else {"per_run": _mean(trend.per_run), "p": trend.p},
        "spread": _mean(figure.spread),
    }


def _lasting(change: LastingChange, runs: Sequence[Rerun]) -> dict[str, Any]:
    return {
        **asdict(change),
        "by": _mean(change.by),
        "run_id": runs[change.run].analysis.run.id,
    }
