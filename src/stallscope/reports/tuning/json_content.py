"""The JSON of tuning, which docs/tune.schema.json describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stallscope.analysis.tuning import Tried, Tuned, Tuning, UntunedRun
from stallscope.parsers.formats.autotune import Sample

from ..base import Content, content_of, fields_of, mean_fields
from .launch_commands import commands, environment


def json_content(tuning: Tuning, left_out: Sequence[str] = ()) -> Content:
    """Return all results as one object; unknown values are None."""
    return content_of(
        autotune=[_tuned(tuned) for tuned in tuning.tuned],
        timelines=[
            {"name": name, **vars(says), "advice": list(map(str, says.advice))}
            for name, says in tuning.timelines
        ],
        warnings=[*tuning.warnings, *left_out],
    )


def _tuned(tuned: Tuned) -> dict[str, Any]:
    return {
        **fields_of(tuned, "name verdict"),
        "settled": tuned.log.settled is not None,
        "setting": None if tuned.setting is None else _sample(tuned.setting),
        "environment": environment(tuned),
        "commands": commands(tuned),
        **fields_of(tuned, "score_noise=noise alike"),
        "insufficient": tuned.insufficient or None,
        "run": None if tuned.run is None else tuned.run.run.id,
        **mean_fields("settled_step_ms", tuned.settled_ms),
        "tried": [_tried(tried) for tried in tuned.tried],
        "compared": [_compared(compared) for compared in tuned.compared],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    return fields_of(sample, "cycle_time_ms fusion_mib switches score_mb_s=score")


def _tried(tried: Tried) -> dict[str, Any]:
    return {
        "number": tried.number,
        **_sample(tried.sample),
        "steps": tried.steps,
        **mean_fields("step_ms", tried.step_ms),
    }


def _compared(untuned: UntunedRun) -> dict[str, Any]:
    names = "step_ms saved_ms speedup ci95"
    return {"run": untuned.analysis.run.id, **fields_of(untuned, names)}
