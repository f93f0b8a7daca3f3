"""Describe the generations of a run: the ranks that trained together between two changes."""

from __future__ import annotations

from stallscope.analysis.generation_summary import GenerationSummary
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount

_ENDS = {
    "completed": "completed",
    "resized": "then the number of ranks changed",
    "restarted": "then the ranks restarted",
    "killed": "then a rank ended without closing its log",
    "stopped": "and hangs",
}


def generation_sentence(generation: GenerationSummary) -> str:
    """Write a generation's ranks, steps, time per step and end."""
    ranks = f"{counted(generation.size, 'rank')} on {counted(len(generation.host_names), 'host')}"
    parts = [f"{ranks}, {counted(generation.steps, 'step')}"]
    if generation.repeated_steps:
        parts.append(f"{generation.repeated_steps:,} of them trained again later")
    if generation.step is not None:
        parts.append(f"{amount(generation.step.mean, 'ms', generation.step.ci95)} per step")
    if generation.ended_by is not None:
        parts.append(_ENDS[generation.ended_by])
    return f"Generation {generation.number}: {', '.join(parts)}"
