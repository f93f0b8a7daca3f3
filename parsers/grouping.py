"""Group logs into runs: by run id, and by the launcher's name of the job where ids differ."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.types import Ints
from stallscope.collector.store.deduplicate import last_attempts, repeat_problems
from stallscope.collector.store.worlds import completions_of, with_generations, worlds_of
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Problem, Run

from .base import Parsed

# Ranks of one launch start together; a launcher that reuses a port does so much later.
_ONE_LAUNCH_NS = 3_600 * 1_000_000_000


def group(source: str, parsed: Iterable[Parsed], problems: Iterable[Problem]) -> list[Run]:
    """Make runs of logs. Problems that belong to no run go to every run."""
    files: dict[str, list[Parsed]] = defaultdict(list)
    for one in parsed:
        files[one.run_id].append(one)
    shared = tuple(problems)
    return [_run(source, run_id, group, shared) for run_id, group in _merged(files).items()]


def _merged(files: dict[str, list[Parsed]]) -> dict[str, list[Parsed]]:
    """Join the logs of one launch: ranks that do not share a folder each found a run of their own."""
    merged: dict[str, list[Parsed]] = {}
    for run_id, group in sorted(files.items()):
        partner = next((name for name, other in merged.items() if _one_launch(other, group)), None)
        if partner is None:
            merged[run_id] = list(group)
        else:
            merged[partner] += group
    return _with_resumed(merged)


def _with_resumed(runs: dict[str, list[Parsed]]) -> dict[str, list[Parsed]]:
    """Join later jobs that went on from a checkpoint of an earlier one, in the same folder."""
    joined: dict[str, list[Parsed]] = {}
    for run_id, group in sorted(runs.items(), key=lambda one: _wall(one[1])):
        earlier = next((name for name, other in joined.items() if _resumes(group, other)), None)
        if earlier is None:
            joined[run_id] = group
        else:
            joined[earlier] = joined[earlier] + group
    return joined


def _resumes(later: list[Parsed], earlier: list[Parsed]) -> bool:
    """Whether a job goes on from a step that an earlier one with the same names had reached."""
    if _names(later) != _names(earlier) or _last_wall(earlier) > _wall(later):
        return False
    first, reached = (_extreme(group, name) for group, name in ((later, "min"), (earlier, "max")))
    return first is not None and reached is not None and 0 < first <= reached + 1


def _names(group: list[Parsed]) -> tuple[object, ...]:
    """Return the folders of a job's logs, and what names its training."""
    folders = {one.log.path.rpartition("/")[0] for one in group}
    facts = ("run_name", "framework", "model", "parameters", "synthetic")
    return folders, *({str(one.log.facts.get(name)) for one in group} for name in facts)


def _extreme(group: list[Parsed], name: str) -> int | None:
    """Return the first (``min``) or last (``max``) step of all logs; None without steps."""
    found = [pc.min_max(one.steps["step"]).as_py()[name] for one in group if one.steps.num_rows]
    return (min if name == "min" else max)(found, default=None)


def _last_wall(group: list[Parsed]) -> int:
    """Return when the last step of any log ended, wall time in nanoseconds."""
    ends = [
        pc.max(one.steps["end"]).as_py() + one.log.wall_minus_monotonic
        for one in group
        if one.steps.num_rows
    ]
    return max(ends, default=_wall(group))


def _one_launch(one: list[Parsed], other: list[Parsed]) -> bool:
    launches = {str(p.log.facts["launch"]) for p in one if p.log.facts.get("launch")}
    if not launches & {str(p.log.facts["launch"]) for p in other if p.log.facts.get("launch")}:
        return False
    if {p.log.rank for p in one} & {p.log.rank for p in other}:
        return False
    return abs(_wall(one) - _wall(other)) < _ONE_LAUNCH_NS


def _wall(group: list[Parsed]) -> int:
    return min(p.log.anchor + p.log.wall_minus_monotonic for p in group)


def _run(source: str, run_id: str, group: list[Parsed], shared: tuple[Problem, ...]) -> Run:
    group = _in_worlds(group)
    # Later attempts last: if a step was recorded twice, the last one counts.
    group = sorted(group, key=lambda p: (p.log.generation, p.log.rank, p.log.part, p.log.anchor))
    steps = _stacked([p.steps for p in group], STEPS_SCHEMA)
    intervals = _stacked([p.intervals for p in group], INTERVALS_SCHEMA)
    problems = [problem for p in group for problem in p.problems]
    logs = tuple(p.log for p in group)
    steps, repeated = last_attempts(steps)
    problems += repeat_problems(repeated)
    return Run(run_id, source, logs, steps, intervals, (*problems, *shared))


def _in_worlds(group: list[Parsed]) -> list[Parsed]:
    """Return the logs with the numbers of their worlds as generations."""

    def completions(index: int) -> tuple[Ints, Ints]:
        return completions_of(group[index].steps)

    found = worlds_of([one.log for one in group], completions)
    return [
        one if one.log.generation == world else _of_world(one, world)
        for one, world in zip(group, found, strict=True)
    ]


def _of_world(one: Parsed, world: int) -> Parsed:
    return replace(
        one,
        log=replace(one.log, generation=world),
        steps=with_generations(one.steps, np.int32(world)),
        intervals=with_generations(one.intervals, np.int32(world)),
    )


def _stacked(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    numbered = [
        table.add_column(0, "log", pa.array(np.full(table.num_rows, index, np.int32)))
        for index, table in enumerate(tables)
    ]
    stacked = pa.concat_tables(numbered).cast(schema)
    # Copying waits for memory, and does so without Python.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        whole = list(pool.map(pa.ChunkedArray.combine_chunks, stacked.columns))
    return pa.table(whole, schema=schema)
