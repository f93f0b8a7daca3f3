"""Write the generations of a run: the ranks that trained together between two changes."""

from __future__ import annotations

from stallscope.analysis.worlds import WorldSummary
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount
from stallscope.run import Event

#: The kind of events that are generations.
WORLD = "world"

_ENDS = {
    "completed": "completed",
    "resized": "then the number of ranks changed",
    "restarted": "then the ranks restarted",
    "killed": "then a rank ended without closing its log",
    "stopped": "and stands still",
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


def world_event(world: WorldSummary) -> Event | None:
    """Return a world as an event from its first step to its last one; None if its times are unknown."""
    if world.started_at is None or world.ended_at is None:
        return None
    began, ended = (round(one.timestamp() * 1e9) for one in (world.started_at, world.ended_at))
    return Event(
        kind=WORLD,
        where="the step logs",
        what=world_sentence(world),
        hosts=tuple(world.host_names),
        wall_ns=ended,
        waited_ns=ended - began,
    )
