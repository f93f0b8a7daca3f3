"""List the runs of a store that a user names: a folder or a URL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stallscope.collector.address import address, where_is
from stallscope.collector.store.folders import may_be_entered
from stallscope.collector.store.layout import MANIFEST
from stallscope.errors import NotFoundError

from .entry import SHARES, Entry
from .index import is_store

_PLACES_SHOWN = 3


@contextmanager
def local_store(place: str) -> Iterator[Path]:
    """Return the store's folder; for a URL, the folder of a local mirror.

    Raises:
        NotFoundError: if no runs were collected there; the message names stores nearby.
    """
    if "://" not in place:
        yield _checked(Path(place))
        return
    # Importing the URL libraries takes longer than listing a folder.
    from stallscope.collector.store.mirror import Mirror, temporary_mirrors

    with temporary_mirrors() as folder:
        mirror = Mirror.create(folder / "store", place)
        mirror.update_all()
        yield _checked(mirror.folder)


def _checked(store: Path) -> Path:
    if not is_store(store):
        raise NotFoundError(_no_runs(store))
    return store


def _no_runs(store: Path) -> str:
    """Say that there are no runs here, and name stores nearby."""
    if "://" in address(store):
        return f"{where_is(store)}: no runs were collected to this URL"
    if not store.is_dir():
        return f"{store}: no such folder"
    if (store / MANIFEST).is_file():
        return f"{store}: this is one collected run; its store is {store.absolute().parent}"
    near = [folder for folder in sorted(_near(store)) if is_store(folder)][:_PLACES_SHOWN]
    hint = "stallscope collect LOGS --to STORE does that, and stallscope report reads logs in place"
    if near:
        hint = f"there are some in {', '.join(map(str, near))}"
    return f"{store}: no runs were collected into this folder; {hint}"


def _near(store: Path) -> list[Path]:
    """Return the usual places of stores: subfolders, and the demo's store."""
    below = [item for item in store.iterdir() if item.is_dir() and not item.name.startswith(".")]
    readable = [item for item in below if may_be_entered(item)]
    return [*readable, store / ".stallscope" / "demo"]


def entry_content(store: Path, entry: Entry, baseline: Entry | None) -> dict[str, Any]:
    """Return a run of a store as a JSON object; unknown values are None."""
    summary = entry.summary
    return {
        "id": entry.id,
        "name": entry.name,
        "path": where_is(store / entry.folder),
        "source": entry.source,
        "framework": entry.framework,
        "versions": _texts(entry.facts.get("versions")),
        "model": entry.model,
        "ranks": entry.ranks,
        "hosts": entry.hosts,
        "steps": summary.steps,
        "epochs": summary.epochs,
        "batch_size": entry.batch_size,
        "synthetic": entry.synthetic,
        "status": entry.status,
        "started_at": entry.started_at,
        "collected_at": entry.collected_at,
        "bytes": entry.bytes,
        "samples_per_second": summary.samples_per_second,
        "step_ms": summary.step_ms,
        "verdict": summary.verdict,
        "cause": summary.cause,
        "fault": summary.fault,
        "goodput": summary.goodput,
        "named_ranks": summary.named_ranks,
        "named_hosts": summary.named_hosts,
        "shares": {name: summary.shares.get(name) for name in SHARES},
        "baseline": None if baseline is None else baseline.id,
    }


def _texts(versions: object) -> dict[str, str | None]:
    # A log may record any value as its versions; None is a library that is not there.
    items = versions.items() if isinstance(versions, Mapping) else ()
    return {str(name): None if value is None else str(value) for name, value in items}
