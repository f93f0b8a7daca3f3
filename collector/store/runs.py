"""A store of collected runs: a folder with one folder per run, readable without the original logs.

One at a URL is worked on through a folder that looks like it: ``mirror.py``.

    STORE/catalogue.sqlite          what is in the store, to be listed at once
    STORE/<run id>/manifest.json    what the run is, its logs with their facts, checksums
                   steps/epochs-….parquet   one file per range of epochs, row groups of one log, or of
                                    several small ones: one rank or one epoch is read without most others
                   steps/logs-….parquet     where a cluster has written them: one file per range of logs
                   intervals.parquet
                   series.parquet   what machines measured, where something told it
                   summary.json     what the analysis found, in short, for the catalogue
                   analysis.parquet all that it found; of large runs only
    STORE/.fetched/                 copies of logs that are far away

A run is written beside its place and moved there when it is whole: nothing half is ever shown.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock

from stallscope.errors import UnreadableError, UnwritableError
from stallscope.run import Run, Series

from ..address import where_is
from ..safe_names import safe_name
from .fetch import writing
from .layout import MANIFEST, checksum
from .loading import INTERVALS, SERIES, SERIES_SCHEMA, VERSION, load_run
from .manifests import ListedFile
from .merge import is_one_job, merged
from .mirror import Mirror
from .step_files import write_rows

LOCK = ".lock"
# A row group of fewer rows costs more than it saves; more files than this are a burden of their own.
_ROWS_PER_GROUP = 4096
_MOST_FILES = 64
# Of saving one run at a URL while others do.
_ATTEMPTS = 10


@dataclass(frozen=True)
class Written:
    """A run whose steps are on disk."""

    #: The run, with what was noticed on the way.
    run: Run
    rows: int
    #: By name relative to the run's folder.
    files: Mapping[str, ListedFile]


class Steps(Protocol):
    """Who reads and writes the steps of collected runs."""

    def load(self, folder: Path) -> Run:
        """A run that was collected before.

        Raises:
            UnreadableError: if it is damaged.
        """

    def write(self, run: Run, folder: Path, place: Path) -> Written:
        """Write the steps of a run into ``steps``, which is not there yet.

        Args:
            folder: where the run is written.
            place: where it will be.
        """


class _InMemory:
    """Steps of runs that are in the memory of this process."""

    def load(self, folder: Path) -> Run:
        return load_run(folder)

    def write(self, run: Run, folder: Path, place: Path) -> Written:
        _write_steps(run.steps, folder / "steps")
        return Written(run, run.steps.num_rows, listed(folder, "steps/*.parquet"))


def save_run(run: Run, store: Path, steps: Steps | None = None) -> Path:
    """Write a run into a store.

    Logs that an earlier collection of the same run brought and this one lacks are kept; another job
    of the same id gets a folder of its own.

    Args:
        steps: who reads and writes them, where they are not in this process.

    Returns:
        The run's folder.

    Raises:
        UnwritableError: if the disk does not take it; what was there before is as it was.
    """
    with writing(store):
        store.mkdir(parents=True, exist_ok=True)
        # Of two collectors that save one run at once, the second sees what the first has brought.
        with FileLock(store / LOCK):
            mirror = Mirror.of(store)
            for _ in range(_ATTEMPTS):
                place = _saved(run, store, steps or _InMemory(), mirror)
                # The lock is of this machine only: at a URL, another one may have been quicker.
                if mirror is None or mirror.put(place.name):
                    return place
    raise UnwritableError(
        f"{where_is(place)}: others have saved this run again and again meanwhile; collect it again"
    )


def _saved(run: Run, store: Path, steps: Steps, mirror: Mirror | None) -> Path:
    """Write a run, with what is there of it, into a folder of the store; the folder."""
    place, old = _place(run, store, steps, mirror)
    whole = run if old is None else merged(run, old)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=store))
    try:
        written = steps.write(whole, unfinished, place)
        pq.write_table(whole.intervals, unfinished / INTERVALS)
        _write_series(whole.series, unfinished / SERIES)
        files = {**listed(unfinished, "*.parquet"), **written.files}
        if mirror is not None:
            files = mirror.named(place.name, unfinished, files)
        (unfinished / MANIFEST).write_text(json.dumps(_manifest(written, files), indent=1))
        _move(unfinished, place)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return place


def _place(run: Run, store: Path, steps: Steps, mirror: Mirror | None) -> tuple[Path, Run | None]:
    """The folder for a run, and what is there of it already."""
    name = safe_name(run.id)
    if name != run.id:
        # Different ids must not end in one folder.
        name = f"{name}-{hashlib.sha256(run.id.encode()).hexdigest()[:8]}"
    for number in itertools.count(1):
        place = store / (name if number == 1 else f"{name}-{number}")
        if mirror is not None:
            mirror.update(place.name)
        if not is_collected(place):
            return place, None
        try:
            old = steps.load(place)
        except UnreadableError:
            return place, None  # damaged: this is the collecting again that its message asks for
        if old.id == run.id and is_one_job(run, old):
            return place, old
    raise AssertionError("unreachable")


def is_collected(path: Path) -> bool:
    """Whether a folder is a collected run."""
    return (path / MANIFEST).is_file()


def collected_runs(store: Path) -> list[Path]:
    """The folders of the runs in a store."""
    if not store.is_dir():
        return []
    return sorted(path for path in store.iterdir() if path.name[0] != "." and is_collected(path))


def _write_steps(steps: pa.Table, folder: Path) -> None:
    folder.mkdir()
    epochs = pc.fill_null(steps["epoch"], -1).to_numpy()
    for first, last, rows in _epoch_ranges(epochs, len(np.unique(steps["log"].to_numpy()))):
        own = steps if rows is None else steps.take(pa.array(rows)).combine_chunks()
        write_rows(own, folder / f"epochs-{first:06d}-{last:06d}.parquet")


def _write_series(series: Sequence[Series], path: Path) -> None:
    """All values, series by series; nothing where there are none."""
    if not series:
        return
    numbers = np.repeat(np.arange(len(series), dtype=np.int32), [len(one.value) for one in series])
    columns = {
        "series": numbers,
        "wall_ns": np.concatenate([one.wall_ns for one in series]),
        "value": np.concatenate([one.value for one in series]),
    }
    pq.write_table(pa.table(columns, SERIES_SCHEMA), path)


def _epoch_ranges(
    epochs: npt.NDArray[np.int32], logs: int
) -> list[tuple[int, int, npt.NDArray[np.int64] | None]]:
    """Ranges of epochs with the rows that each has; None where that is all of them, in their order.

    As narrow as row groups of some thousand rows allow, so that reading one epoch reads little else.
    """
    there, counts = np.unique(epochs, return_counts=True)
    if not len(there):
        return [(0, 0, None)]
    target = max(_ROWS_PER_GROUP * max(logs, 1), -(-len(epochs) // _MOST_FILES))
    part = (np.cumsum(counts) - counts) // target
    if part[-1] == part[0]:
        return [(max(int(there[0]), 0), max(int(there[-1]), 0), None)]
    of_row = part[np.searchsorted(there, epochs)]
    ranges: list[tuple[int, int, npt.NDArray[np.int64] | None]] = []
    for one in np.unique(part):
        own = there[part == one]
        ranges.append((max(int(own[0]), 0), max(int(own[-1]), 0), np.flatnonzero(of_row == one)))
    return ranges


def _manifest(written: Written, files: Mapping[str, ListedFile]) -> dict[str, Any]:
    run = written.run
    return {
        "stallscope_collected": VERSION,
        "run_id": run.id,
        "name": run.name,
        "source": run.source,
        "collected_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "logs": [{**asdict(log), "facts": dict(log.facts)} for log in run.logs],
        "rows": written.rows,
        "problems": [asdict(problem) for problem in run.problems],
        "input_times": [asdict(measured) for measured in run.input_times],
        "events": [asdict(event) for event in run.events],
        "series": [
            {name: getattr(series, name) for name in ("name", "unit", "node", "rank", "where")}
            for series in run.series
        ],
        "files": {name: asdict(file) for name, file in sorted(files.items())},
    }


def listed(folder: Path, pattern: str) -> dict[str, ListedFile]:
    """The files of a folder as manifests have them."""
    return {
        path.relative_to(folder).as_posix(): ListedFile(path.stat().st_size, checksum(path))
        for path in folder.glob(pattern)
    }


def _move(unfinished: Path, place: Path) -> None:
    """Put the finished folder in its place; what was there before goes when the new one stands."""
    unfinished.chmod(0o755)
    if not place.exists():
        unfinished.rename(place)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{place.name}-old-", dir=place.parent))
    place.rename(old / place.name)
    unfinished.rename(place)
    shutil.rmtree(old)
