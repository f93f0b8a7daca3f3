"""RUN, wherever a command takes one: from what the user typed to a Run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stallscope.collector.loading import load_run
from stallscope.collector.store import collected_runs, is_collected
from stallscope.errors import NotFoundError
from stallscope.parsers import read
from stallscope.run import Problem, Run


def open_runs(source: str, *, read_as: str | None = None) -> list[Run]:
    """The runs that a RUN argument means: all of a store, otherwise one.

    A folder that several jobs have logged into is the newest of them, and says so; ``FOLDER#RUN_ID``
    names another.

    Raises:
        NotFoundError: if nothing is there, or no run of that id.
        UnreadableError: if it cannot be read.
    """
    place, _, run_id = source.partition("#")
    path = Path(place)
    if is_collected(path):
        return [load_run(path)]
    in_store = collected_runs(path) if path.is_dir() else []
    if in_store and not run_id:
        return [load_run(folder) for folder in in_store]
    runs = [load_run(folder) for folder in in_store] or read(place, read_as=read_as)
    return [_chosen(place, run_id, runs)]


def open_run(source: str, *, read_as: str | None = None) -> Run:
    """The one run that a RUN argument means.

    Raises:
        NotFoundError: as ``open_runs``, and if the place is a store with several runs.
    """
    runs = open_runs(source, read_as=read_as)
    if len(runs) > 1:
        raise NotFoundError(
            f"{source}: there are {len(runs)} runs in this store; name one: {source}#{runs[0].id}"
        )
    return runs[0]


def store_of(source: str) -> Path | None:
    """The store that a RUN argument's runs are in; None where they are not collected."""
    path = Path(source.partition("#")[0])
    if is_collected(path):
        return path.parent
    return path if path.is_dir() and collected_runs(path) else None


def _chosen(place: str, run_id: str, runs: list[Run]) -> Run:
    if run_id:
        for run in runs:
            if run.id == run_id:
                return run
        there = ", ".join(run.id for run in runs[:10])
        raise NotFoundError(f"{place}: there is no run {run_id}; there are {there}")
    newest = runs[0]
    if len(runs) == 1:
        return newest
    others = Problem(
        place,
        f"{len(runs) - 1} older run(s) have logs here, too: this is {newest.id}, the newest; "
        f"another one is {place}#{runs[1].id}",
    )
    return replace(newest, problems=(*newest.problems, others))
