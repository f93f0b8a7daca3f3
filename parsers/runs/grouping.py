"""Group logs into runs: by run id, or by the launch if ids differ."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from stallscope.arrays.memory import Constants, are_long
from stallscope.collector.store.generations import generations_of, with_generations
from stallscope.collector.store.merge import last_attempts, repeat_problems
from stallscope.run import (
    INTERVALS_SCHEMA,
    STEPS_SCHEMA,
    TIMESTAMPS,
    Problem,
    Run,
    wall_offsets,
)

from ..base import Parsed, cast

#: After joining smaller columns no memory is released: with fragmented memory, each release takes
#: milliseconds.
RELEASED_BYTES = 1 << 20

T = TypeVar("T")
# To start threads takes longer than to copy fewer rows.
_FEW_ROWS = 100_000
# Ranks of one launch start together; a launcher reuses a port only much later.
_ONE_LAUNCH_NS = 3_600 * 1_000_000_000


def group(source: str, parsed: Iterable[Parsed], problems: Iterable[Problem]) -> list[Run]:
    """Make runs of logs. Problems that belong to no run go to every run."""
    files: dict[str, list[Parsed]] = defaultdict(list)
    for log in parsed:
        files[log.run_id].append(log)
    shared = tuple(problems)
    # Joined by launch, and with the jobs that resumed.
    runs = _with_resumed(by_launch(files, _launch))
    files.clear()
    # Popping a run's logs frees their memory as soon as it is copied.
    return [_run(source, run_id, runs.pop(run_id), shared) for run_id in list(runs)]


def _with_resumed(runs: dict[str, list[Parsed]]) -> dict[str, list[Parsed]]:
    """Join later jobs that resumed from a checkpoint of an earlier one in the same folder."""
    if len(runs) == 1:
        return runs
    walls = wall_offsets(parsed.log for group in runs.values() for parsed in group)
    all_jobs = {run_id: _Job.of(group, walls) for run_id, group in runs.items()}
    joined: dict[str, list[Parsed]] = {}
    jobs: dict[str, _Job] = {}
    for run_id, job in sorted(all_jobs.items(), key=lambda pair: pair[1].began):
        group = runs[run_id]
        earlier = next((name for name, previous in jobs.items() if job.resumes(previous)), None)
        if earlier is None:
            joined[run_id], jobs[run_id] = group, job
        else:
            joined[earlier] = joined[earlier] + group
            jobs[earlier] = jobs[earlier].followed_by(job)
    return joined


@dataclass(frozen=True)
class _Job:
    """The properties by which a job is recognised as resuming another one."""

    #: The folders of its logs, and the facts that identify its training.
    names: tuple[object, ...]
    #: Wall times of its start and of the end of its last step, nanoseconds.
    began: int
    ended: int
    #: None without steps.
    first_step: int | None
    last_step: int | None

    @classmethod
    def of(cls, group: list[Parsed], walls: Mapping[str, int]) -> _Job:
        """Return the properties of a job.

        Args:
            group: its logs.
            walls: see ``wall_offsets``.
        """
        steps = [parsed.step_range for parsed in group if parsed.step_range is not None]
        to_wall = [
            walls.get(parsed.log.clock_domain, parsed.log.wall_minus_monotonic) for parsed in group
        ]
        ends = [
            parsed.last_end + offset
            for parsed, offset in zip(group, to_wall, strict=True)
            if parsed.last_end is not None
        ]
        began = min(
            parsed.log.anchor + offset for parsed, offset in zip(group, to_wall, strict=True)
        )
        return cls(
            names=_names(group),
            began=began,
            ended=max(ends, default=began),
            first_step=min((first for first, _ in steps), default=None),
            last_step=max((last for _, last in steps), default=None),
        )

    def resumes(self, earlier: _Job) -> bool:
        """Whether it continues at a step that an earlier job with the same names had reached."""
        if self.names != earlier.names or earlier.ended > self.began:
            return False
        if self.first_step is None or earlier.last_step is None:
            return False
        return 0 < self.first_step <= earlier.last_step + 1

    def followed_by(self, later: _Job) -> _Job:
        """Return both jobs as one; the later one has steps."""
        assert self.last_step is not None
        assert later.last_step is not None
        last_step = max(self.last_step, later.last_step)
        return replace(self, ended=max(self.ended, later.ended), last_step=last_step)


def _names(group: list[Parsed]) -> tuple[object, ...]:
    folders = {parsed.log.path.rpartition("/")[0] for parsed in group}
    facts = ("run_name", "framework", "model", "parameters", "synthetic")
    return folders, *({str(parsed.log.facts.get(name)) for parsed in group} for name in facts)


def _launch(parsed: Parsed) -> Launch:
    began = parsed.log.anchor + parsed.log.wall_minus_monotonic
    return Launch.of_log(parsed.log.facts.get("launch"), parsed.log.rank, began)


def _run(source: str, run_id: str, group: list[Parsed], shared: tuple[Problem, ...]) -> Run:
    group[:] = _in_generations(group)
    # Later attempts last: if a step was recorded twice, the last one counts.
    group.sort(key=lambda p: (p.log.generation, p.log.rank, p.log.part, p.log.anchor))
    problems = [problem for p in group for problem in p.problems]
    logs = tuple(p.log for p in group)
    tables = [p.steps for p in group], [p.intervals for p in group]
    group.clear()
    steps, intervals = map(_stacked, tables, (STEPS_SCHEMA, INTERVALS_SCHEMA))
    steps, repeated = last_attempts(steps)
    problems += repeat_problems(repeated)
    return Run(run_id, source, logs, steps, intervals, (*problems, *shared))


def _in_generations(group: list[Parsed]) -> list[Parsed]:
    """Return the logs, each with the number of its generation."""
    numbers = generations_of(
        [parsed.log for parsed in group], lambda index: group[index].completions()
    )
    return [
        parsed if parsed.log.generation == number else _numbered(parsed, number)
        for parsed, number in zip(group, numbers, strict=True)
    ]


def _numbered(parsed: Parsed, number: int) -> Parsed:
    return replace(
        parsed,
        log=replace(parsed.log, generation=number),
        steps=with_generations(parsed.steps, np.int32(number)),
        intervals=with_generations(parsed.intervals, np.int32(number)),
    )


def _stacked(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """Stack the tables of logs and number them; empties the list."""
    rows = sum(table.num_rows for table in tables)
    chunks: dict[str, list[pa.Array]] = {name: [] for name in schema.names}
    numbers = Constants(schema.field("log").type)
    for index, table in enumerate(tables):
        for name, column in zip(table.column_names, table.columns, strict=True):
            chunks[name] += column.chunks
        chunks["log"] += numbers.of(index, table.num_rows)
    tables.clear()

    def whole(field: pa.Field) -> pa.Array | pa.ChunkedArray:
        parts = [cast(part, field.type) for part in chunks.pop(field.name)]
        if field.name not in TIMESTAMPS and are_long(parts):
            return pa.chunked_array(parts, field.type)
        array = pa.concat_arrays(parts) if parts else pa.nulls(0, field.type)
        del parts
        if array.nbytes > RELEASED_BYTES:
            # The memory of small pieces is not reused for large arrays.
            pa.default_memory_pool().release_unused()
        return array

    if rows < _FEW_ROWS:
        return pa.table(list(map(whole, schema)), schema=schema)
    # Copying releases the GIL, and is limited by memory bandwidth.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return pa.table(list(pool.map(whole, schema)), schema=schema)


# -- Find the logs of one launch: without a shared folder, each rank's log has another run id -----


@dataclass
class Launch:
    """What logs say about the launch that they are from."""

    #: The launcher's names of the job; empty if no log has one.
    names: set[str]
    ranks: set[int]
    #: The wall time of the first start, nanoseconds since 1970.
    began_ns: int

    @classmethod
    def of_log(cls, name: object, rank: int, began_ns: int) -> Launch:
        """Return what one log says; ``name`` is its fact ``launch``."""
        return cls({str(name)} if name else set(), {rank}, began_ns)

    @classmethod
    def of_logs(cls, logs: Iterable[Launch]) -> Launch:
        """Return what several logs of one launch say together."""
        launches = list(logs)
        return cls(
            {name for launch in launches for name in launch.names},
            {rank for launch in launches for rank in launch.ranks},
            min(launch.began_ns for launch in launches),
        )

    def is_also(self, launch: Launch) -> bool:
        """Whether these are further ranks of the same launch."""
        if not self.names & launch.names or self.ranks & launch.ranks:
            return False
        return abs(self.began_ns - launch.began_ns) < _ONE_LAUNCH_NS

    def add(self, launch: Launch) -> None:
        """Add what other logs of this launch say."""
        self.names |= launch.names
        self.ranks |= launch.ranks
        self.began_ns = min(self.began_ns, launch.began_ns)


def by_launch(
    logs: Mapping[str, Sequence[T]], launch_of: Callable[[T], Launch]
) -> dict[str, list[T]]:
    """Join the logs of each launch under the lowest of their run ids, which names the run.

    Args:
        logs: by run id.
        launch_of: returns what a log says about its launch.
    """
    launches: dict[str, Launch] = {}
    joined: dict[str, list[T]] = {}
    for run_id, run_logs in sorted(logs.items()):
        launch = Launch.of_logs(map(launch_of, run_logs))
        name = next((name for name, earlier in launches.items() if earlier.is_also(launch)), None)
        if name is None:
            launches[run_id], joined[run_id] = launch, list(run_logs)
        else:
            launches[name].add(launch)
            joined[name] += run_logs
    return joined
