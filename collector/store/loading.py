"""Collected runs, read back: whole, in parts, or on demand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stallscope.errors import UnknownVersionError, UnreadableError
from stallscope.run import (
    INTERVALS_SCHEMA,
    STEPS_SCHEMA,
    Event,
    InputStage,
    Log,
    MeasuredInput,
    Problem,
    Run,
    Series,
)

from ..address import where_is
from .layout import MANIFEST
from .manifests import ListedFile
from .mirror import Mirror
from .reading_steps import read_steps

#: Of the folder of a collected run.
VERSION = 2
#: Files of steps are in a folder of this name.
STEPS = "steps"
INTERVALS = "intervals.parquet"
SERIES = "series.parquet"
#: A row per value; ``series`` is the number of its series in the manifest.
SERIES_SCHEMA = pa.schema(
    [("series", pa.int32()), ("wall_ns", pa.int64()), ("value", pa.float64())]
)
_TABLES = ("steps", "intervals")
_LATER = (*_TABLES, "series")


def load_run(
    path: Path, *, ranks: Sequence[int] | None = None, epochs: Sequence[int] | None = None
) -> Run:
    """Read a collected run back.

    Args:
        path: the run's folder.
        ranks: only the steps of these; of none, no file of steps is opened.
        epochs: only the steps of these.

    Raises:
        UnreadableError: if a part of it is missing or damaged.
    """
    with _told_as_damage(path):
        manifest = _manifest_of(path)
        files = manifest["files"]
        return Run(
            **_but_for_tables(manifest),
            steps=_read_steps(path, files, ranks, epochs),
            intervals=_read_intervals(path, files),
            series=_read_series(path, files, manifest.get("series", [])),
        )


class RunOnDisk(Run):
    """A collected run whose tables are read on demand."""

    @classmethod
    def open(cls, path: Path) -> RunOnDisk:
        """The run in a folder.

        Raises:
            UnreadableError: if a part of it is missing or damaged, or another state of it has taken its
                place; where that concerns tables, when they are asked for.
        """
        run = cls.__new__(cls)
        with _told_as_damage(path):
            manifest = _manifest_of(path)
            # Collected before manifests told it: then the tables are read at once.
            rows = manifest.get("rows")
            own = {"_path": path, "_files": manifest["files"], "_rows": rows, "_reading": Lock()}
            own["_series"] = manifest.get("series", [])
            # The fields of a frozen dataclass; those that are missing are asked of __getattr__.
            vars(run).update(_but_for_tables(manifest), **own)
        return run

    @property
    def rows(self) -> int:
        """Rows of ``steps``."""
        known = vars(self).get("_rows")
        return self.steps.num_rows if known is None else int(known)

    def __getattr__(self, name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(name)
        with self._reading:
            if name not in vars(self):
                vars(self).update(self._tables() if name in _TABLES else self._read_series())
        return vars(self)[name]

    def _tables(self) -> dict[str, pa.Table]:
        with self._as_it_was():
            steps = _read_steps(self._path, self._files, None, None)
            return {"steps": steps, "intervals": _read_intervals(self._path, self._files)}

    def _read_series(self) -> dict[str, tuple[Series, ...]]:
        with self._as_it_was():
            return {"series": _read_series(self._path, self._files, self._series)}

    @contextmanager
    def _as_it_was(self) -> Iterator[None]:
        with _told_as_damage(self._path):
            if _manifest_of(self._path)["files"] != self._files:
                raise UnreadableError(
                    f"{where_is(self._path)}: this run was collected again meanwhile; open it again"
                )
            yield


@contextmanager
def _told_as_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise UnreadableError(
            f"{where_is(path)}: the collected run is damaged ({error}); collect it again"
        ) from error


def _manifest_of(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
    version = manifest["stallscope_collected"]
    if version > VERSION:
        raise UnknownVersionError(
            f"{where_is(path)}: collected by a newer Stallscope (format {version}, this one knows "
            f"{VERSION}): upgrade it with pip install --upgrade stallscope"
        )
    if Mirror.of(path.parent) is None:
        _check_sizes(path, manifest["files"])
    return manifest


def _but_for_tables(manifest: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": manifest["run_id"],
        "source": manifest["source"],
        "logs": tuple(Log(**log) for log in manifest["logs"]),
        "problems": tuple(Problem(**problem) for problem in manifest["problems"]),
        "input_times": tuple(map(_measured, manifest.get("input_times", []))),
        "events": tuple(map(_event, manifest.get("events", []))),
    }


def _measured(content: dict[str, Any]) -> MeasuredInput:
    stages = tuple(
        InputStage(**{**stage, "ci95_ms": _pair(stage["ci95_ms"])}) for stage in content["stages"]
    )
    return MeasuredInput(**{**content, "ci95_ms": _pair(content["ci95_ms"]), "stages": stages})


def _event(content: dict[str, Any]) -> Event:
    places = {name: tuple(content[name]) for name in ("ranks", "hosts")}
    return Event(**{**content, **places})


def _pair(ci95: list[float] | None) -> tuple[float, float] | None:
    return None if ci95 is None else (ci95[0], ci95[1])


def _read_intervals(path: Path, files: dict[str, Any]) -> pa.Table:
    table = _whole(_brought(path, files, INTERVALS)[0])
    for field in INTERVALS_SCHEMA:
        # Collected before there were steps that are not recorded one by one.
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(INTERVALS_SCHEMA.names).cast(INTERVALS_SCHEMA).combine_chunks()


def _read_series(
    path: Path, files: dict[str, Any], told: Sequence[dict[str, Any]]
) -> tuple[Series, ...]:
    if not told:
        return ()
    table = _whole(_brought(path, files, SERIES)[0]).cast(SERIES_SCHEMA)
    numbers, walls, values = (table[name].to_numpy() for name in SERIES_SCHEMA.names)
    edges = np.searchsorted(numbers, np.arange(len(told) + 1))
    return tuple(
        Series(**one, wall_ns=walls[first:last], value=values[first:last])
        for one, first, last in zip(told, edges[:-1], edges[1:], strict=True)
    )


def _whole(path: Path) -> pa.Table:
    # read_table is for folders of files: it takes longer to begin with than this to read.
    with pq.ParquetFile(path) as file:
        return file.read()


def _check_sizes(path: Path, files: dict[str, Any]) -> None:
    for name, file in files.items():
        size = (path / name).stat().st_size
        if size != file["size"]:
            raise ValueError(f"{name} has {size} bytes, not {file['size']}")


def _read_steps(
    path: Path,
    files: dict[str, Any],
    ranks: Sequence[int] | None,
    epochs: Sequence[int] | None,
) -> pa.Table:
    if ranks is not None and not len(ranks):
        return STEPS_SCHEMA.empty_table()
    return read_steps(_brought(path, files, STEPS), ranks, epochs)


def _brought(path: Path, files: dict[str, Any], kind: str) -> list[Path]:
    """The files of a kind, by name; of a store at a URL, they come when they are read."""
    own = sorted(names_of(files, kind))
    if not own:
        raise ValueError(f"no {kind} in its manifest")
    mirror = Mirror.of(path.parent)
    if mirror is not None:
        mirror.bring(
            path.name,
            {
                name: ListedFile(int(files[name]["size"]), str(files[name]["sha256"]))
                for name in own
            },
        )
    return [path / name for name in own]


def names_of(files: Iterable[str], kind: str) -> list[str]:
    """The names among a run's files that are of a kind: ``STEPS``, ``INTERVALS`` or ``SERIES``."""
    stem = kind.removesuffix(".parquet")
    return [name for name in files if name.startswith(stem)]
