"""Look at runs in the browser."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from stallscope.catalogue import Catalogue
from stallscope.catalogue.index import is_store
from stallscope.collector.store.mirror import place_for_mirrors
from stallscope.collector.store.runs import is_collected
from stallscope.dashboard.access import new_token
from stallscope.dashboard.server import serve
from stallscope.dashboard.store import Collected, Experiment, RunStore
from stallscope.errors import NotFoundError, StallscopeError, UsageError
from stallscope.runs import near_store

from . import mlflow_runs
from .main import FINE
from .opening import open_all

DEFAULT_PORT = 8050
#: Where runs are looked for if none are named: here, where the docs collect to, the demo's.
PLACES = (Path(), Path("runs"), Path(".stallscope/demo"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="runs to show, or folders that runs were collected into; without any, the runs collected "
        f"into {_places('or')}",
    )
    parser.add_argument("--baseline", metavar="RUN", help="a further run, to compare with")
    mlflow_runs.add_picking_arguments(parser, "list")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="0 takes any free one (8050)"
    )
    parser.add_argument(
        "--token",
        nargs="?",
        const="",
        metavar="TOKEN",
        help="answer only who knows it, and then on any --host; without a value STALLSCOPE_TOKEN, or a "
        "new one",
    )
    parser.add_argument(
        "--prefix", default="/", metavar="PATH", help="the path below which a proxy serves it (/)"
    )
    parser.add_argument(
        "--read-as", metavar="NAME", help="the parser to use, whatever it looks like"
    )


def run(options: argparse.Namespace) -> int:
    experiments = [Experiment(name, options.filter) for name in mlflow_runs.experiments(options)]
    sources = options.runs or _default(needed=not experiments)
    sources = [*sources, *filter(None, [options.baseline])]
    with place_for_mirrors() as folder:
        near = [near_store(source, folder) for source in sources]
        store, failures = opened(near, options.read_as, experiments)
        for failure in failures:
            print(f"stallscope: {failure}", file=sys.stderr)
        serve(
            store,
            host=options.host,
            port=options.port,
            token=_token(options.token),
            prefix=options.prefix,
        )
    return FINE


def _token(given: str | None) -> str | None:
    """None without access control. What stands in a command line, others on the machine can read."""
    if given is None:
        return None
    return given or os.environ.get("STALLSCOPE_TOKEN") or new_token()


def opened(
    sources: Sequence[str], read_as: str | None = None, experiments: Sequence[Experiment] = ()
) -> tuple[RunStore, list[str]]:
    """What the dashboard shows of the RUN arguments, and a sentence for each that cannot be read.

    Collected runs and those of MLflow's experiments stay where they are until a user opens
    them; all others are read.

    Raises:
        UsageError: if none of them can be shown.
        StallscopeError: if an experiment cannot be listed.
    """
    stores: dict[Path, set[str] | None] = {}
    others: list[str] = []
    failures: list[str] = []
    for source in sources:
        try:
            collected = _collected(source)
        except StallscopeError as error:
            failures.append(str(error))
            continue
        if collected is None:
            others.append(source)
        else:
            store, folder = collected
            shown = stores.setdefault(store, set())
            stores[store] = None if folder is None or shown is None else shown | {folder}
    runs, unread = open_all(others, read_as)
    if not runs and not stores and not experiments:
        for failure in [*failures, *unread]:
            print(f"stallscope: {failure}", file=sys.stderr)
        raise UsageError("none of the runs can be shown")
    shelves = [Collected(store, only) for store, only in stores.items()]
    return RunStore(runs, shelves=[*shelves, *experiments]), [*failures, *unread]


def _collected(source: str) -> tuple[Path, str | None] | None:
    """The store that a RUN is in, and the run's folder, or None for all of them; None if neither.

    Raises:
        NotFoundError: if the store has no run of that id.
    """
    place, _, run_id = source.partition("#")
    path = Path(place)
    if is_collected(path):
        return path.absolute().parent, path.absolute().name
    if not is_store(path):
        return None
    if not run_id:
        return path.absolute(), None
    with Catalogue.open(path) as catalogue:
        entry = catalogue.find(run_id)
    if entry is None:
        raise NotFoundError(
            f"{place}: there is no run {run_id}; stallscope runs {place} lists them"
        )
    return path.absolute(), entry.folder


def _default(*, needed: bool) -> list[str]:
    """Where there are collected runs.

    Raises:
        UsageError: if there are none, and they are needed.
    """
    for place in PLACES:
        if is_store(place):
            print(f"stallscope: the runs collected into {_said(place)}", file=sys.stderr)
            return [str(place)]
    if not needed:
        return []
    raise UsageError(
        f"no runs were collected into {_places('or')}: name a RUN, or begin with "
        "stallscope collect SOURCE --to runs, or with stallscope demo"
    )


def _places(joined_by: str) -> str:
    *first, last = map(_said, PLACES)
    return f"{', '.join(first)} {joined_by} {last}"


def _said(place: Path) -> str:
    return "this folder" if place == Path() else str(place)
