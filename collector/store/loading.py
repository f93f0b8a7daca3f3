"""Load collected runs: completely, in part, or on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stallscope.arrays import arrow
from stallscope.errors import UnknownVersionError, UnreadableError
from stallscope.run import INTERVALS_SCHEMA, Run, Series
from stallscope.run.run import END_COLUMNS

from .layout import MANIFEST, where_is
from .manifests import NOT_A_MANIFEST, ListedFile, Manifest, parse_manifest
from .mirror import Mirror
from .step_files import read_steps

#: The version of the format of a collected run.
VERSION = 2
#: The folder with the files of steps.
STEPS = "steps"
INTERVALS = "intervals.parquet"
SERIES = "series.parquet"
#: A row per value; ``series`` is the number of its series in the manifest.
SERIES_SCHEMA = pa.schema(
    [("series", pa.int32()), ("wall_ns", pa.int64()), ("value", pa.float64())]
)
_TABLES = ("steps", "intervals")
_LAZY_FIELDS = (*_TABLES, "series")


def load_run(path: Path, *, with_steps: bool = True) -> Run:
    """Load a collected run.

    Args:
        path: the run's folder.
        with_steps: whether to read the steps; otherwise their table is empty.

    Raises:
        UnreadableError: if a file is missing or damaged.
    """
    with _damage_as_unreadable(path):
        manifest = _manifest_of(path)
        run, files = manifest.run(), manifest.files
        return replace(
            run,
            steps=_read_steps(path, files) if with_steps else run.steps,
            intervals=_read_intervals(path, files),
            series=_read_series(path, files, manifest.series),
        )


class RunOnDisk(Run):
    """A collected run whose tables are read on demand."""

    @classmethod
    def open(cls, path: Path) -> RunOnDisk:
        """Open the run in a folder.

        Raises:
            UnreadableError: if a file is missing or damaged, or the run was collected again. For
                tables, the error comes when they are read.
        """
        run = cls.__new__(cls)
        with _damage_as_unreadable(path):
            manifest = _manifest_of(path)
            fields = {"_path": path, "_files": manifest.files, "_series": manifest.series}
            # Older manifests lack the number of rows; then ``rows`` reads the tables.
            fields["_rows"] = manifest.rows
            # A page that needs series or intervals does not wait for the steps of a large run.
            fields["_reading"] = {name: Lock() for name in _LAZY_FIELDS}
            # Frozen dataclasses allow no assignment; __getattr__ loads the other fields.
            vars(run).update(vars(manifest.run()), **fields)
            for name in _LAZY_FIELDS:
                del vars(run)[name]
        return run

    @property
    def rows(self) -> int:
        """Return the number of rows of ``steps``."""
        known = vars(self).get("_rows")
        return self.steps.num_rows if known is None else int(known)

    def __getattr__(self, name: str) -> Any:
        if name not in _LAZY_FIELDS:
            raise AttributeError(name)
        with self._reading[name]:
            if name not in vars(self):
                with self._unchanged():
                    vars(self)[name] = self._read(name)
            return vars(self)[name]

    def _read(self, name: str) -> Any:
        if name == "steps":
            return _read_steps(self._path, self._files)
        if name == "intervals":
            return _read_intervals(self._path, self._files)
        return _read_series(self._path, self._files, self._series)

    def forget_tables(self) -> None:
        """Free the tables of steps and intervals; they are read again when they are needed."""
        for name in _TABLES:
            with self._reading[name]:
                vars(self).pop(name, None)

    def ends_of(self, generation: int, steps: Sequence[int]) -> pa.Table:
        """Return the ends of some steps; of a large run, no other rows stay in memory.

        A step's page asks for the same ends several times: the last answer is kept.
        """
        if "steps" in vars(self):
            return super().ends_of(generation, steps)
        asked = generation, tuple(steps)
        answer: tuple[Any, pa.Table] | None = vars(self).get("_ends")
        if answer is None or answer[0] != asked:
            answer = asked, self._read_ends(generation, steps)
            vars(self)["_ends"] = answer
        return answer[1]

    def _read_ends(self, generation: int, steps: Sequence[int]) -> pa.Table:
        # Only here, as it takes long to import.
        import pyarrow.dataset as ds

        chosen = (pc.field("generation") == generation) & pc.field("step").isin([*steps])
        with self._unchanged():
            files = ds.dataset(_local_files(self._path, self._files, STEPS), format="parquet")
            return files.to_table(columns=list(END_COLUMNS), filter=chosen)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        with _damage_as_unreadable(self._path):
            if _manifest_of(self._path).files != self._files:
                raise UnreadableError(
                    f"{where_is(self._path)}: this run was collected again meanwhile; open it again"
                )
            yield


@contextmanager
def _damage_as_unreadable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, *NOT_A_MANIFEST, pa.ArrowException) as error:
        raise UnreadableError(
            f"{where_is(path)}: the collected run is damaged ({error}); collect it again"
        ) from error


def _manifest_of(path: Path) -> Manifest:
    manifest = parse_manifest((path / MANIFEST).read_bytes())
    if manifest.version > VERSION:
        raise UnknownVersionError(
            f"{where_is(path)}: collected by a newer Stallscope (format {manifest.version}, this one "
            f"knows {VERSION}): upgrade it with pip install --upgrade stallscope"
        )
    if Mirror.of(path.parent) is None:
        _check_sizes(path, manifest.files)
    return manifest


def _read_intervals(path: Path, files: Mapping[str, ListedFile]) -> pa.Table:
    table = _read_parquet(_local_files(path, files, INTERVALS)[0])
    for field in INTERVALS_SCHEMA:
        # Older runs lack newer columns.
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(INTERVALS_SCHEMA.names).cast(INTERVALS_SCHEMA).combine_chunks()


def _read_series(
    path: Path, files: Mapping[str, ListedFile], descriptions: Sequence[Mapping[str, Any]]
) -> tuple[Series, ...]:
    if not descriptions:
        return ()
    table = _read_parquet(_local_files(path, files, SERIES)[0]).cast(SERIES_SCHEMA)
    numbers, walls, values = (arrow.numbers(table[name]) for name in SERIES_SCHEMA.names)
    edges = np.searchsorted(numbers, np.arange(len(descriptions) + 1))
    return tuple(
        Series(**description, wall_ns=walls[first:last], value=values[first:last])
        for description, first, last in zip(descriptions, edges[:-1], edges[1:], strict=True)
    )


def _read_parquet(path: Path) -> pa.Table:
    # Opening a dataset with read_table takes longer than reading the file.
    with pq.ParquetFile(path) as file:
        return file.read()


def _check_sizes(path: Path, files: Mapping[str, ListedFile]) -> None:
    for name, file in files.items():
        size = (path / name).stat().st_size
        if size != file.size:
            raise ValueError(f"{name} has {size} bytes, not {file.size}")


def _read_steps(path: Path, files: Mapping[str, ListedFile]) -> pa.Table:
    return read_steps(_local_files(path, files, STEPS))


def _local_files(path: Path, files: Mapping[str, ListedFile], kind: str) -> list[Path]:
    """Return the files of a kind, by name; download those of a store at a URL."""
    names = sorted(names_of(files, kind))
    if not names:
        raise ValueError(f"no {kind} in its manifest")
    mirror = Mirror.of(path.parent)
    if mirror is not None:
        mirror.download(path.name, {name: files[name] for name in names})
    return [path / name for name in names]


def names_of(files: Iterable[str], kind: str) -> list[str]:
    """Return the names of a run's files of a kind: ``STEPS``, ``INTERVALS`` or ``SERIES``."""
    stem = kind.removesuffix(".parquet")
    return [name for name in files if name.startswith(stem)]
