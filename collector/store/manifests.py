"""Find the runs in a store, and read their manifests and facts without opening their tables."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from stallscope.errors import NotFoundError, UnreadableError

from ..recorder.job.job_settings import with_masked_settings
from ..run_names import NamedRun, index_of
from .layout import MANIFEST, where_is

if TYPE_CHECKING:
    from stallscope.run import Run

T = TypeVar("T")

#: The errors of parsing bytes that are not a manifest of Stallscope, or whose facts are not a run's.
NOT_A_MANIFEST = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

#: Bytes at the start of a manifest that show whose it is.
_START = 4096

_OTHERS = ("problems", "input_times", "network_checks", "events")


@dataclass(frozen=True)
class ListedFile:
    """A file of a run as its manifest describes it."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The manifest of a collected run; ``run_folders.py`` writes it."""

    #: The version of the format of the run.
    version: int
    run_id: str
    source: str
    collected_at: str | None
    #: One object per log, with the fields of ``stallscope.run.Log``.
    logs: Sequence[Mapping[str, Any]]
    #: The number of rows of its steps; None in manifests of older versions.
    rows: int | None
    #: One object per series, with the fields of ``stallscope.run.Series`` that are no values.
    series: Sequence[Mapping[str, Any]]
    #: The objects of the run's other fields, by field.
    others: Mapping[str, Sequence[Mapping[str, Any]]]
    #: By name relative to the run's folder, with ``/`` between folders. The names are untrusted.
    files: Mapping[str, ListedFile]
    #: The checksum of the manifest, which identifies its state.
    sha256: str

    @property
    def run_name(self) -> str:
        """Return the run's name, or its id where the user gave none."""
        named = (log.get("facts", {}).get("run_name") for log in self.logs)
        return str(next(filter(None, named), self.run_id))

    @property
    def bytes(self) -> int:
        """Return the size of the run's files."""
        return sum(file.size for file in self.files.values())

    def run(self) -> Run:
        """Return the run with its facts and empty tables.

        Raises:
            any of ``NOT_A_MANIFEST``: if the facts are not a run's.
        """
        from stallscope.arrays import arrow
        from stallscope.run import (
            INTERVALS_SCHEMA,
            STEPS_SCHEMA,
            Event,
            Log,
            MeasuredInput,
            NetworkCheck,
            Problem,
            Run,
        )

        checks = map(with_masked_settings, self.others["network_checks"])
        return Run(
            id=self.run_id,
            source=self.source,
            logs=tuple(
                Log(**{**log, "facts": with_masked_settings(log["facts"])}) for log in self.logs
            ),
            steps=arrow.empty_table(STEPS_SCHEMA),
            intervals=arrow.empty_table(INTERVALS_SCHEMA),
            problems=tuple(Problem(**problem) for problem in self.others["problems"]),
            input_times=_objects(MeasuredInput, self.others["input_times"]),
            network_checks=_objects(NetworkCheck, checks),
            events=_objects(Event, self.others["events"]),
        )


def _objects(kind: type[T], contents: Iterable[Mapping[str, Any]]) -> tuple[T, ...]:
    """Make objects of a run; fields that older stores lack get their defaults."""
    listed = list(contents)
    if not listed:
        return ()
    # Most runs have none; executors of Spark, which have no cattrs, load steps only.
    from cattrs import BaseValidationError, structure

    try:
        return tuple(structure(content, kind) for content in listed)
    except BaseValidationError as error:
        raise ValueError(f"no {kind.__name__} of a run") from error


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a collected run.

    Raises:
        NotFoundError: if the folder has no manifest.
        UnreadableError: if the manifest is damaged, or of another program.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise NotFoundError(
            f"{folder}: this is not a collected run: it has no {MANIFEST}"
        ) from None
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return parse_manifest(data)
    except NOT_A_MANIFEST as error:
        raise UnreadableError(
            f"{folder}: its {MANIFEST} is damaged, or of another program; collect the run again"
        ) from error


def parse_manifest(data: bytes) -> Manifest:
    """Parse the bytes of a manifest.

    Raises:
        any of ``NOT_A_MANIFEST``: if Stallscope has not written them.
    """
    return _manifest(json.loads(data), hashlib.sha256(data).hexdigest())


def is_inside(name: str) -> bool:
    """Whether a relative file name stays within its folder."""
    path = PurePosixPath(name)
    return name != "" and "\0" not in name and not path.is_absolute() and ".." not in path.parts


def _manifest(content: Mapping[str, Any], sha256: str) -> Manifest:
    version = content["stallscope_collected"]
    if not isinstance(version, int):
        raise TypeError("not a manifest of Stallscope")
    collected_at = content.get("collected_at")
    return Manifest(
        version=version,
        run_id=str(content["run_id"]),
        source=str(content.get("source") or ""),
        collected_at=None if collected_at is None else str(collected_at),
        logs=[dict(log) for log in content["logs"]],
        rows=content.get("rows"),
        series=list(map(dict, content.get("series", []))),
        others={name: list(map(dict, content.get(name, []))) for name in _OTHERS},
        files={
            str(name): ListedFile(int(file["size"]), str(file["sha256"]))
            for name, file in content["files"].items()
        },
        sha256=sha256,
    )


# -- Find collected runs by their folders, without opening their tables ---------------------------


def is_collected(path: Path) -> bool:
    """Whether a folder is a collected run, perhaps a damaged one."""
    manifest = path / MANIFEST
    return is_regular_file(manifest) and not _is_foreign(manifest)


def _is_foreign(manifest: Path) -> bool:
    """Whether another program wrote a whole manifest; several use that name."""
    with suppress(OSError, ValueError, RecursionError), manifest.open("rb") as file:
        # The key comes first, and manifests of many ranks are long.
        data = file.read(_START)
        if b'"stallscope_collected"' not in data:
            content = json.loads(data + file.read())
            return isinstance(content, dict) and "stallscope_collected" not in content
    return False


def is_regular_file(path: Path) -> bool:
    """Whether a file exists and is no pipe; False, not an error, if permissions hide it."""
    try:
        return path.is_file()
    except OSError:
        return False


def collected_runs(store: Path) -> list[Path]:
    """Return the folders of the runs in a store; none if it cannot be listed."""
    try:
        items = list(store.iterdir())
    except OSError:
        return []  # reading it as logs reports the error
    return sorted(path for path in items if path.name[0] != "." and is_collected(path))


def may_be_entered(folder: Path) -> bool:
    """Whether permissions let this user see what is in a folder."""
    return os.access(folder, os.R_OK | os.X_OK)


def closed_folders(store: Path) -> list[Path]:
    """Return the folders of a store that permissions do not let this user see into."""
    with suppress(OSError), os.scandir(store) as items:
        folders = [store / item.name for item in items if item.is_dir() and item.name[0] != "."]
        return sorted(folder for folder in folders if not may_be_entered(folder))
    return []


def closed_folder_problem(folder: Path) -> str:
    """Say that permissions keep a folder closed."""
    return f"{folder}: cannot be read: Permission denied"


def collected_folder(store: Path, wanted: str) -> Path:
    """Return the folder of a run in a store, by its id, its name, or the start of either.

    Damaged runs are left out.

    Raises:
        NotFoundError: if no run fits, or several do.
    """
    known: list[tuple[Path, Manifest]] = []
    for folder in collected_runs(store):
        with suppress(NotFoundError, UnreadableError):
            known.append((folder, read_manifest(folder)))
    known.sort(key=lambda collected: collected[1].collected_at or "", reverse=True)
    runs = [NamedRun(manifest.run_id, manifest.run_name) for _, manifest in known]
    return known[index_of(wanted, runs, where_is(store))][0]
