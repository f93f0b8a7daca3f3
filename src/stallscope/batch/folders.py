"""Find the runs of a folder without reading more of its step logs than their first lines."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stallscope.collector.recorder.step_log.format import SUFFIX, header_facts

from .units import Unit, units_of

# A first line has some kilobytes.
_MOST_BYTES = 1 << 20


class _Log(NamedTuple):
    folder: Path
    began_ns: int


def runs_of(source: str) -> list[Unit]:
    """Return the places of a RUN like ``units_of``, and for a folder with several jobs' step logs one
    per job, the newest first.

    Raises:
        NotFoundError: if a store has no such run.
    """
    units = units_of(source)
    path = Path(source)
    if len(units) > 1 or units[0].collected or "#" in source or not path.is_dir():
        return units
    logs: dict[str, list[_Log]] = defaultdict(list)
    for file in path.rglob(f"*{SUFFIX}"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            facts = _first_line(file)
            logs[str(facts["run_id"])].append(_Log(file.parent, facts["anchor"]["wall_ns"]))
    if len(logs) < 2:
        return units
    newest = sorted(logs, key=lambda run_id: -max(log.began_ns for log in logs[run_id]))
    return [Unit(_place_of(path, run_id, logs)) for run_id in newest]


def _first_line(file: Path) -> dict[str, dict[str, int]]:
    with file.open("rb") as opened:
        return header_facts(opened.readline(_MOST_BYTES))


def _place_of(path: Path, run_id: str, logs: dict[str, list[_Log]]) -> str:
    """Return a run's own folder, which is read faster than the whole one, if it has one."""
    own = {log.folder for log in logs[run_id]}
    others = {log.folder for other, found in logs.items() if other != run_id for log in found}
    if len(own) == 1 and not any(folder.is_relative_to(next(iter(own))) for folder in others):
        return str(own.pop())
    return f"{path}#{run_id}"
