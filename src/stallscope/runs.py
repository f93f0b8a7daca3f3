"""RUN, wherever a command takes one: from what the user typed to a Run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stallscope.collector.address import where_is
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.mirror import mirrored, place_for_mirrors
from stallscope.collector.store.runs import collected_runs, is_collected
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.parsers import read
from stallscope.parsers.progress import Watching, unwatched
from stallscope.run import Problem, Run


def open_runs(
    source: str,
    *,
    read_as: str | None = None,
    watching: Watching = unwatched,
    repeats: bool = False,
) -> list[Run]:
    """The runs that a RUN argument means: all of a store, otherwise one.

    A folder that several jobs have logged into is the newest of them, and says so; ``FOLDER#RUN_ID``
    names another.

    Args:
        watching: shows how many of so many files, or runs of a store, were read.
        repeats: all runs of a place whose logs know epochs only: files of repeats, one run each.

    Raises:
        NotFoundError: if nothing is there, or no run of that id.
        UnreadableError: if it cannot be read.
    """
    with place_for_mirrors() as folder:
        place = near_store(source, folder)
        return runs_at(place, read_as=read_as, watching=watching, repeats=repeats)


def runs_at(
    source: str,
    *,
    read_as: str | None = None,
    watching: Watching = unwatched,
    repeats: bool = False,
) -> list[Run]:
    """The same of a RUN argument that ``near_store`` has seen."""
    place, _, run_id = source.partition("#")
    path = Path(place)
    if is_collected(path):
        return [load_run(path)]
    in_store = collected_runs(path) if path.is_dir() else []
    if in_store:
        runs = _loaded(in_store, watching)
        return [chosen(where_is(path), run_id, runs)] if run_id else runs
    found = read(place, read_as=read_as, watching=watching)
    if repeats and not run_id and not any(run.rows for run in found):
        return found
    return [chosen(place, run_id, found)]


def near_store(source: str, folder: Path) -> str:
    """A RUN argument for what is collected at a URL as one for the folder that mirrors it; any other as
    it is.

    Args:
        folder: where mirrors are made; it has to outlast the runs' reading.
    """
    place, mark, run_id = source.partition("#")
    try:
        found = mirrored(place, folder)
    except StallscopeError:
        return source  # said by what opens it as logs
    return source if found is None else f"{found}{mark}{run_id}"


def open_run(source: str, *, read_as: str | None = None, watching: Watching = unwatched) -> Run:
    """The one run that a RUN argument means; ``open_runs`` tells of the arguments.

    Raises:
        NotFoundError: as ``open_runs``, and if the place is a store with several runs.
    """
    runs = open_runs(source, read_as=read_as, watching=watching)
    if len(runs) > 1:
        raise NotFoundError(
            f"{source}: there are {len(runs)} runs in this store; name one: {source}#{runs[0].id}"
        )
    return runs[0]


def _loaded(folders: Sequence[Path], watching: Watching) -> list[Run]:
    runs = []
    with watching("reading runs", len(folders)) as watch:
        for done, folder in enumerate(folders):
            watch(done)
            runs.append(load_run(folder))
    return runs


def store_of(source: str) -> Path | None:
    """The store that a RUN argument's runs are in; None where they are not collected."""
    path = Path(source.partition("#")[0])
    if is_collected(path):
        return path.parent
    return path if path.is_dir() and collected_runs(path) else None


def chosen(place: str, run_id: str, runs: list[Run]) -> Run:
    """The one of a place's runs that is meant: the newest, which says so, unless an id names another.

    Args:
        runs: the newest first.

    Raises:
        NotFoundError: if there is no run of that id.
    """
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
