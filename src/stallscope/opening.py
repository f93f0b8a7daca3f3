"""Open RUN arguments of commands as Runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from stallscope.collector.run_names import NamedRun, RunAddress, index_of
from stallscope.collector.store.manifests import (
    closed_folder_problem,
    closed_folders,
    collected_folder,
    collected_runs,
    is_collected,
)
from stallscope.collector.store.mirror import open_mirror, temporary_mirrors
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.formatting.lists import counted
from stallscope.parsers import read
from stallscope.parsers.base import ShowProgress, no_progress
from stallscope.run import Problem, Run


def open_runs(
    source: str | RunAddress,
    *,
    read_as: str | None = None,
    show_progress: ShowProgress = no_progress,
) -> list[Run]:
    """Open the runs of a RUN argument: all runs of a place, or the one that ``PLACE#NAME`` names.

    Args:
        show_progress: shows how many files, or runs of a store, were read.

    Raises:
        NotFoundError: if nothing is there, or no run has that name.
        UnreadableError: if it cannot be read.
        UsageError: if the argument is invalid.
    """
    with temporary_mirrors() as folder:
        address = local_address(source, folder)
        return runs_at(address, read_as=read_as, show_progress=show_progress)


def runs_at(
    address: RunAddress, *, read_as: str | None = None, show_progress: ShowProgress = no_progress
) -> list[Run]:
    """Open the runs of an address that ``local_address`` returned; see ``open_runs``.

    Runs of logs are the newest first.
    """
    path = Path(address.place)
    if is_collected(path):
        return named_runs(address, [load_collected(path)])
    in_store = collected_runs(path)
    if in_store:
        chosen = [collected_folder(path, address.run)] if address.run else in_store
        warnings = tuple(store_warnings(path))
        runs = _load_all(chosen, show_progress)
        return [replace(run, place_warnings=warnings) for run in runs] if warnings else runs
    runs = read(address.place, read_as=read_as, show_progress=show_progress)
    return named_runs(address, runs)


def place_warnings(runs: Iterable[Run]) -> list[str]:
    """Return what is in no run at the places of these runs, each warning once, for all commands."""
    return list(dict.fromkeys(warning for run in runs for warning in run.place_warnings))


def store_warnings(store: Path) -> list[str]:
    """Return a warning for each folder of a store that permissions keep closed."""
    return [f"{closed_folder_problem(folder)}; left out" for folder in closed_folders(store)]


def load_collected(folder: Path, *, with_steps: bool = True) -> Run:
    """Load a collected run; see ``load_run``."""
    # Importing Parquet takes as long as analysing a small run, and only collected runs need it.
    from stallscope.collector.store.loading import load_run

    return load_run(folder, with_steps=with_steps)


def local_address(source: str | RunAddress, folder: Path) -> RunAddress:
    """Return the address of a RUN argument; if it is in a store at a URL, that in its local mirror.

    Args:
        folder: the folder for mirrors; it must exist until the runs are read.

    Raises:
        UsageError: if the argument is invalid.
    """
    address = source if isinstance(source, RunAddress) else RunAddress.parse(source)
    try:
        mirror = open_mirror(address.place, folder)
    except StallscopeError:
        return address  # opening it as logs reports the error
    return address if mirror is None else address._replace(place=str(mirror))


def open_run(
    source: str, *, read_as: str | None = None, show_progress: ShowProgress = no_progress
) -> Run:
    """Open the run of a RUN argument; for the arguments, see ``open_runs``.

    Raises:
        NotFoundError: see ``open_runs``; also if the place has several runs.
    """
    runs = open_runs(source, read_as=read_as, show_progress=show_progress)
    if len(runs) > 1:
        raise several_runs_error(source, [run.id for run in runs])
    return runs[0]


def several_runs_error(source: str, ids: Sequence[str]) -> NotFoundError:
    """Return the error about a place with several runs where one is needed.

    Args:
        source: the place, as the user names it.
        ids: of its runs.
    """
    return NotFoundError(f"{source}: there are {len(ids)} runs here; name one: {source}#{ids[0]}")


def _load_all(folders: Sequence[Path], show_progress: ShowProgress) -> list[Run]:
    runs = []
    with show_progress("reading runs", len(folders)) as update:
        for done, folder in enumerate(folders):
            update(done)
            runs.append(load_collected(folder))
    return runs


def store_of(address: RunAddress) -> Path | None:
    """Return the store of an address; None if its runs are not collected."""
    path = Path(address.place)
    if is_collected(path):
        return path.parent
    return path if collected_runs(path) else None


def named_runs(address: RunAddress, runs: list[Run]) -> list[Run]:
    """Return the run that an address names; without a name, all of the place's runs.

    Args:
        runs: the runs of the place, the newest first.

    Raises:
        NotFoundError: if none of them has the name, or several do.
    """
    if not address.run:
        return runs
    # A process that resumes from a checkpoint records its own id, not that of the run it continues.
    continued = [run for run in runs if address.run in _recorded_ids(run)]
    if len(continued) == 1:
        return continued
    named = [NamedRun(run.id, run.name) for run in runs]
    return [runs[index_of(address.run, named, address.place)]]


def newest_run(place: str, runs: Sequence[Run]) -> Run:
    """Return a place's newest run with a problem that names the others.

    Args:
        runs: the newest first.
    """
    newest, *older = runs
    if not older:
        return newest
    problem = Problem(
        place,
        f"logs of {counted(len(older), 'older run')} are here, too: this is {newest.id}, the newest; "
        f"another one is {place}#{older[0].id}",
    )
    return replace(newest, problems=(*newest.problems, problem))


def _recorded_ids(run: Run) -> set[str]:
    """Return the ids that the processes of a run have recorded."""
    return {str(log.facts.get("run_id")) for log in run.logs}
