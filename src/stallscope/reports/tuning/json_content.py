"""The JSON of tuning, which docs/tune.schema.json describes."""

from __future__ import annotations

from typing import Any

from stallscope.analysis.tuning import Tried, Tuned, Tuning, UntunedRun
from stallscope.parsers.formats.autotune import Sample

from ..base import Content, content_of, fields_of, mean_fields
from .launch_commands import commands, environment


def json_content(tuning: Tuning) -> Content:
    """Return all results as one object; unknown values are None."""
    return content_of(
        autotune=[_tuned(one) for one in tuning.tuned],
        timelines=[
            {"name": name, **vars(says), "advice": list(map(str, says.advice))}
            for name, says in tuning.timelines
        ],
        warnings=tuning.warnings,
    )


def _tuned(one: Tuned) -> dict[str, Any]:
    return {
        **fields_of(one, "name verdict"),
        "settled": one.log.settled is not None,
        "setting": None if one.setting is None else _sample(one.setting),
        "environment": environment(one),
        "commands": commands(one),
        **fields_of(one, "score_noise=noise alike"),
        "insufficient": one.insufficient or None,
        "run": None if one.run is None else one.run.run.id,
        **mean_fields("settled_step_ms", one.settled_ms),
        "tried": [_tried(tried) for tried in one.tried],
        "compared": [_compared(compared) for compared in one.compared],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    return fields_of(sample, "cycle_time_ms fusion_mib switches score_mb_s=score")


def _tried(one: Tried) -> dict[str, Any]:
    return {
        "number": one.number,
        **_sample(one.sample),
        "steps": one.steps,
        **mean_fields("step_ms", one.step_ms),
    }


def _compared(one: UntunedRun) -> dict[str, Any]:
    names = "step_ms saved_ms speedup ci95"
    return {"run": one.analysis.run.id, **fields_of(one, names)}
