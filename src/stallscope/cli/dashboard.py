"""Show runs in the browser."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from stallscope.catalogue.index import Catalogue, is_store
from stallscope.collector.run_names import RunAddress
from stallscope.collector.store.manifests import is_collected
from stallscope.collector.store.mirror import temporary_mirrors
from stallscope.errors import StallscopeError, UsageError
from stallscope.opening import local_address

from . import mlflow_runs
from .main import SUCCESS, add_read_as, importing, print_failures, print_warnings
from .progress_bars import show_progress

if TYPE_CHECKING:
    from stallscope.dashboard.store import Experiment, RunStore

DEFAULT_PORT = 8050
_MANTINE = "dash_mantine_components"
#: The components of Mantine that pages use.
COMPONENTS = (
    *("Alert", "Anchor", "AppShell", "AppShellHeader", "AppShellMain", "Badge", "Box", "Button"),
    *("Card", "Code", "ColorSchemeToggle", "Container", "Group", "List", "ListItem", "Loader"),
    *("MantineProvider", "NumberInput", "ProgressRoot", "ProgressSection", "Select", "SimpleGrid"),
    *("Stack", "Table", "TableTbody", "TableTd", "TableTh", "TableThead", "TableTr", "Text"),
    *("TextInput", "ThemeIcon", "Title"),
)
#: Where to look for runs if the user names none: this folder, the one of the docs, the demo's.
PLACES = (Path(), Path("runs"), Path(".stallscope/demo"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="runs to show, or folders and stores of them (default: the runs collected into "
        f"{_places('or')})",
    )
    parser.add_argument("--baseline", metavar="RUN", help="another run, to compare with")
    mlflow_runs.add_picking_arguments(parser, "list")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        help="port to serve on; 0 takes any free one (default: %(default)s)",
    )
    parser.add_argument(
        "--token",
        nargs="?",
        const="",
        metavar="TOKEN",
        help="require this token, which allows any --host; without a value, STALLSCOPE_TOKEN or a new "
        "token",
    )
    parser.add_argument(
        "--prefix",
        default="/",
        metavar="PATH",
        help="the path under which a proxy serves it (default: %(default)s)",
    )
    add_read_as(parser)


def run(options: argparse.Namespace) -> int:
    # Dash takes a second to import, and --help does without.
    with importing():
        with _hidden("IPython"):
            # All imports below use it as it is now.
            import dash  # noqa: F401
        _import_components()
        from stallscope.dashboard.server import serve
        from stallscope.dashboard.store import Experiment

    experiments = [Experiment(name, options.filter) for name in mlflow_runs.experiments(options)]
    sources = options.runs or _default_sources(needed=not experiments)
    sources = [*sources, *filter(None, [options.baseline])]
    with temporary_mirrors() as folder:
        addresses = [local_address(source, folder) for source in sources]
        store, failures = open_store(addresses, options.read_as, experiments)
        print_failures(failures)
        known = set(failures)
        print_warnings([problem for problem in store.listing().problems if problem not in known])
        serve(
            store,
            host=options.host,
            port=options.port,
            token=_token(options.token),
            prefix=options.prefix,
        )
    return SUCCESS


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Let nothing import a package, which is not imported yet, within the block.

    Dash imports IPython and requests to run in notebooks, which takes a tenth of the time to the first
    page; without IPython it does without.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


def _import_components() -> None:
    """Import only the components that pages use, which saves a seventh of the time to the first page.

    Their package imports all of its 150 components by name from one module, which this replaces.
    """
    package = find_spec(_MANTINE)
    if _MANTINE in sys.modules or package is None or not package.submodule_search_locations:
        return
    components: Any = ModuleType(f"{_MANTINE}._imports_")
    components.__all__ = [*COMPONENTS]
    try:
        for name in COMPONENTS:
            path = Path(package.submodule_search_locations[0], f"{name}.py")
            spec = spec_from_file_location(f"{_MANTINE}.{name}", path)
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            setattr(components, name, getattr(module, name))
    except (OSError, AttributeError):
        return  # another version of the package, which then imports all
    sys.modules[components.__name__] = components


def _token(given: str | None) -> str | None:
    """Return the access token; None without access control.

    Other users of the machine can read command lines, so the value may come from the environment.
    """
    from stallscope.dashboard.security import new_token

    if given is None:
        return None
    return given or os.environ.get("STALLSCOPE_TOKEN") or new_token()


def open_store(
    addresses: Sequence[RunAddress],
    read_as: str | None = None,
    experiments: Sequence[Experiment] = (),
) -> tuple[RunStore, list[str]]:
    """Return the runs to show, and an error message for each RUN that cannot be read.

    Collected runs and runs of MLflow experiments are read when a user opens them; all others are
    read now, and those that come into their folders when a user looks at the list.

    Raises:
        UsageError: if there is nothing to show.
        StallscopeError: if an experiment cannot be listed.
    """
    from stallscope.dashboard.store import CollectedRuns, RunStore, WatchedPlace

    stores: dict[Path, set[str] | None] = {}
    logs: list[RunAddress] = []
    failures: list[str] = []
    for address in addresses:
        try:
            collected = _collected(address)
        except StallscopeError as error:
            failures.append(str(error))
            continue
        if collected is None:
            logs.append(address)
        else:
            folder, run = collected
            shown = stores.setdefault(folder, set())
            stores[folder] = None if run is None or shown is None else shown | {run}
    places = [WatchedPlace(address, read_as) for address in logs]
    run_sources = [CollectedRuns(folder, only) for folder, only in stores.items()]
    store = RunStore(
        places=places, sources=[*run_sources, *experiments], show_progress=show_progress
    )
    failures += [failure for place in places for failure in place.failures]
    if not stores and not experiments and not store.runs():
        print_failures(failures)
        raise UsageError("none of the runs can be shown")
    return store, failures


def _collected(address: RunAddress) -> tuple[Path, str | None] | None:
    """Return a collected RUN's store and folder (None: all runs); None if it is not collected.

    Raises:
        NotFoundError: if the store has no such run.
    """
    path = Path(address.place)
    if is_collected(path):
        return path.absolute().parent, path.absolute().name
    if not is_store(path):
        return None
    if not address.run:
        return path.absolute(), None
    with Catalogue.open(path) as catalogue:
        return path.absolute(), catalogue.choose(address.run)[0].folder


def _default_sources(*, needed: bool) -> list[str]:
    """Return the first default store that exists.

    Raises:
        UsageError: if there is none, and one is needed.
    """
    for place in PLACES:
        if is_store(place):
            print(f"stallscope: the runs collected into {_describe_place(place)}", file=sys.stderr)
            return [str(place)]
    if not needed:
        return []
    raise UsageError(
        f"no runs were collected into {_places('or')}: name a RUN, or start with "
        "stallscope collect SOURCE --to runs, or with stallscope demo"
    )


def _places(joined_by: str) -> str:
    *first, last = map(_describe_place, PLACES)
    return f"{', '.join(first)} {joined_by} {last}"


def _describe_place(place: Path) -> str:
    return "this folder" if place == Path() else str(place)
