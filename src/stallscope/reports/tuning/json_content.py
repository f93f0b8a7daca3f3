"""The JSON of tuning, which docs/tune.schema.json describes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stallscope.analysis.tuning import Compared, TimelineSays, Tried, Tuned, Tuning
from stallscope.parsers.autotune import Sample

from ..content import SCHEMA_VERSION, Content, ci95_of, valid, value_of
from .launch_commands import commands, environment


def json_content(tuning: Tuning) -> Content:
    """Return all results as one object; unknown values are None."""
    content: Content = valid(
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
        "settled_step_ms": value_of(one.settled_ms),
        "settled_step_ci95_ms": ci95_of(one.settled_ms),
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
        "step_ms": value_of(one.step_ms),
        "step_ci95_ms": ci95_of(one.step_ms),
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
