"""JSON for programs: what docs/tune.schema.json describes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from stallscope.analysis.tuning import Compared, TimelineSays, Tried, Tuned, Tuning
from stallscope.arrays.stats import Mean
from stallscope.parsers.autotune import Sample

from ..base import ReportOptions
from ..json_report import valid
from .passing import commands, environment

SCHEMA_VERSION = 1


def json_text(tuning: Tuning, _options: ReportOptions) -> str:
    return json.dumps(document(tuning), indent=1, allow_nan=False) + "\n"


def document(tuning: Tuning) -> dict[str, Any]:
    """All that was found as one object; what is not known is None."""
    content: dict[str, Any] = valid(
        {
            "schema_version": SCHEMA_VERSION,
            "autotune": [_tuned(one) for one in tuning.tuned],
            "timelines": [_timeline(name, says) for name, says in tuning.timelines],
            "warnings": tuning.warnings,
        }
    )
    return content


def _tuned(one: Tuned) -> dict[str, Any]:
    return {
        "name": one.name,
        "verdict": one.verdict,
        "settled": one.log.settled is not None,
        "setting": None if one.setting is None else _sample(one.setting),
        "environment": environment(one),
        "commands": commands(one),
        "score_noise": one.noise,
        "alike": one.alike,
        "insufficient": one.insufficient or None,
        "run": None if one.run is None else one.run.run.id,
        "settled_step_ms": _value(one.settled_ms),
        "settled_step_ci95_ms": _ci95(one.settled_ms),
        "tried": [_tried(tried) for tried in one.tried],
        "compared": [_compared(compared) for compared in one.compared],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    return {
        "cycle_time_ms": sample.cycle_time_ms,
        "fusion_mib": sample.fusion_mib,
        "switches": dict(sample.switches),
        "score_mb_s": sample.score,
    }


def _tried(one: Tried) -> dict[str, Any]:
    return {
        "number": one.number,
        **_sample(one.sample),
        "steps": one.steps,
        "step_ms": _value(one.step_ms),
        "step_ci95_ms": _ci95(one.step_ms),
    }


def _compared(one: Compared) -> dict[str, Any]:
    return {
        "run": one.analysis.run.id,
        "step_ms": one.step_ms.value,
        "step_ci95_ms": one.step_ms.ci95,
        "saved_ms": one.saved_ms.value,
        "saved_ci95_ms": one.saved_ms.ci95,
        "speedup": one.speedup,
        "ci95": one.ci95,
    }


def _timeline(name: str, says: TimelineSays) -> dict[str, Any]:
    figures = asdict(says)
    figures["advice"] = [str(piece) for piece in says.advice]
    return {"name": name, **figures}


def _value(mean: Mean | None) -> float | None:
    return None if mean is None else mean.value


def _ci95(mean: Mean | None) -> tuple[float, float] | None:
    return None if mean is None else mean.ci95
