"""Write the generations of a run: the ranks that trained together between two changes."""

from __future__ import annotations

from stallscope.analysis.worlds import WorldSummary
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount

_ENDS = {
    "completed": "completed",
    "resized": "then the number of ranks changed",
    "restarted": "then the ranks restarted",
    "killed": "then a rank ended without closing its log",
    "stopped": "and hangs",
}


def world_sentence(world: WorldSummary) -> str:
    """Write a world's ranks, steps, time per step and end."""
    ranks = f"{counted(world.size, 'rank')} on {counted(len(world.host_names), 'host')}"
    parts = [f"{ranks}, {counted(world.steps, 'step')}"]
    if world.repeated_steps:
        parts.append(f"{world.repeated_steps:,} of them trained again later")
    if world.step is not None:
        parts.append(f"{amount(world.step.mean, 'ms', world.step.ci95)} per step")
    if world.ended_by is not None:
        parts.append(_ENDS[world.ended_by])
    return f"Generation {world.number}: {', '.join(parts)}"
