"""Find the runs of a folder without reading more of its step logs than their first lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from stallscope.collector.recorder.step_log.format import SUFFIX, header_facts
from stallscope.parsers.runs.launches import Launch, by_launch

from .units import Unit, units_of

# A first line has some kilobytes.
_MOST_BYTES = 1 << 20


class _Log(NamedTuple):
    folder: Path
    launch: Launch


def runs_of(source: str) -> list[Unit]:
    """Return the places of a RUN like ``units_of``, and for a folder with several jobs' step logs one
    per job, as ``jobs_at`` does.

    Raises:
        NotFoundError: if a store has no such run.
    """
    return jobs_at(source, units_of(source))


def jobs_at(source: str, units: list[Unit]) -> list[Unit]:
    """Return a place for each job in a folder, the newest first; other places as they are.

    A job that resumed from another one's checkpoint has a separate place.

    Args:
        source: a RUN.
        units: what ``units_of`` returned for it.
    """
    path = Path(source)
    if len(units) > 1 or units[0].collected or "#" in source or not path.is_dir():
        return units
    logs: dict[str, list[_Log]] = defaultdict(list)
    for file in path.rglob(f"*{SUFFIX}"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            run_id, launch = _first_line(file)
            logs[run_id].append(_Log(file.parent, launch))
    jobs = by_launch(logs, lambda log: log.launch)
    if len(jobs) < 2:
        return units
    newest = sorted(jobs, key=lambda run_id: -max(log.launch.began_ns for log in jobs[run_id]))
    return [Unit(_place_of(path, run_id, jobs)) for run_id in newest]


def _first_line(file: Path) -> tuple[str, Launch]:
    """Return a log's run id, and what it says about its launch."""
    with file.open("rb") as opened:
        facts: dict[str, Any] = header_facts(opened.readline(_MOST_BYTES))
    rank, began_ns = int(facts["rank"]), int(facts["anchor"]["wall_ns"])
    return str(facts["run_id"]), Launch.of_log(facts.get("launch"), rank, began_ns)


def _place_of(path: Path, run_id: str, jobs: Mapping[str, Sequence[_Log]]) -> str:
    """Return a run's own folder, which is read faster than the whole one, if it has one."""
    own = {log.folder for log in jobs[run_id]}
    others = {log.folder for other, found in jobs.items() if other != run_id for log in found}
    if len(own) == 1 and not any(folder.is_relative_to(next(iter(own))) for folder in others):
        return str(own.pop())
    return f"{path}#{run_id}"
