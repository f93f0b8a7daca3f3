"""Open RUN arguments of commands as Runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stallscope.collector.run_names import NamedRun, index_of
from stallscope.collector.store.folders import collected_folder, collected_runs, is_collected
from stallscope.collector.store.mirror import open_mirror, temporary_mirrors
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.formatting.lists import counted
from stallscope.parsers import read
from stallscope.parsers.progress import ShowProgress, no_progress
from stallscope.run import Problem, Run


def open_runs(
    source: str,
    *,
    read_as: str | None = None,
    show_progress: ShowProgress = no_progress,
    repeats: bool = False,
) -> list[Run]:
    """Open the runs of a RUN argument: all runs of a store, otherwise one run.

    For a folder with logs of several jobs this is the newest, with a problem that names the others;
    ``FOLDER#RUN_ID`` chooses another.

    Args:
        show_progress: shows how many files, or runs of a store, were read.
        repeats: if logs only record epochs, return all runs of the place: one per file.

    Raises:
        NotFoundError: if nothing is there, or no run has that id.
        UnreadableError: if it cannot be read.
    """
    with temporary_mirrors() as folder:
        place = local_source(source, folder)
        return runs_at(place, read_as=read_as, show_progress=show_progress, repeats=repeats)


def runs_at(
    source: str,
    *,
    read_as: str | None = None,
    show_progress: ShowProgress = no_progress,
    repeats: bool = False,
) -> list[Run]:
    """Open the runs of a RUN argument that ``local_source`` returned; see ``open_runs``."""
    place, _, run_id = source.partition("#")
    path = Path(place)
    if is_collected(path):
        return [load_collected(path)]
    in_store = collected_runs(path) if path.is_dir() else []
    if in_store:
        return _load_all([collected_folder(path, run_id)] if run_id else in_store, show_progress)
    found = read(place, read_as=read_as, show_progress=show_progress)
    if repeats and not run_id and not any(run.rows for run in found):
        return found
    return [choose_run(place, run_id, found)]


def load_collected(folder: Path, *, with_steps: bool = True) -> Run:
    """Load a collected run; see ``load_run``."""
    # Importing Parquet takes as long as analysing a small run, and only collected runs need it.
    from stallscope.collector.store.loading import load_run

    return load_run(folder, with_steps=with_steps)


def local_source(source: str, folder: Path) -> str:
    """Return a RUN argument in a store at a URL as one in its local mirror; any other unchanged.

    Args:
        folder: the folder for mirrors; it must exist until the runs are read.
    """
    place, mark, run_id = source.partition("#")
    try:
        found = open_mirror(place, folder)
    except StallscopeError:
        return source  # opening it as logs reports the error
    return source if found is None else f"{found}{mark}{run_id}"


def open_run(
    source: str, *, read_as: str | None = None, show_progress: ShowProgress = no_progress
) -> Run:
    """Open the run of a RUN argument; for the arguments, see ``open_runs``.

    Raises:
        NotFoundError: see ``open_runs``; also if the place is a store with several runs.
    """
    runs = open_runs(source, read_as=read_as, show_progress=show_progress)
    if len(runs) > 1:
        raise NotFoundError(
            f"{source}: there are {len(runs)} runs in this store; name one: {source}#{runs[0].id}"
        )
    return runs[0]


def _load_all(folders: Sequence[Path], show_progress: ShowProgress) -> list[Run]:
    runs = []
    with show_progress("reading runs", len(folders)) as update:
        for done, folder in enumerate(folders):
            update(done)
            runs.append(load_collected(folder))
    return runs


def store_of(source: str) -> Path | None:
    """Return the store of a RUN argument; None if its runs are not collected."""
    path = Path(source.partition("#")[0])
    if is_collected(path):
        return path.parent
    return path if path.is_dir() and collected_runs(path) else None


def choose_run(place: str, wanted: str, runs: list[Run]) -> Run:
    """Return the named run, or else a place's newest run with a problem that names the others.

    Args:
        wanted: the run's id, its name, or the start of either; empty for the newest.
        runs: the newest first.

    Raises:
        NotFoundError: if none of them matches, or several do.
    """
    if wanted:
        # A process that resumes from a checkpoint records its own id, not that of the run it continues.
        continued = [run for run in runs if wanted in _recorded_ids(run)]
        if len(continued) == 1:
            return continued[0]
        return runs[index_of(wanted, [NamedRun(run.id, run.name) for run in runs], place)]
    newest = runs[0]
    if len(runs) == 1:
        return newest
    others = Problem(
        place,
        f"logs of {counted(len(runs) - 1, 'older run')} are here, too: this is {newest.id}, the newest; "
        f"another one is {place}#{runs[1].id}",
    )
    return replace(newest, problems=(*newest.problems, others))


def _recorded_ids(run: Run) -> set[str]:
    """Return the ids that the processes of a run have recorded."""
    return {str(log.facts.get("run_id")) for log in run.logs}
