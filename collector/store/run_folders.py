"""Save runs into a store: a folder with one folder per run, readable without the original logs.

A store at a URL has a local mirror: ``mirror.py``.

    STORE/catalogue.sqlite          the list of runs
    STORE/<run id>/manifest.json    the run's id, its logs with their facts, checksums
                   steps/epochs-….parquet   one file per range of epochs; a row group per log, or per
                                    several small logs: reading one rank or epoch reads little else
                   steps/logs-….parquet     written by a cluster: one file per range of logs
                   intervals.parquet
                   series.parquet   measurements of machines, if there are any
                   summary.json     a summary of the analysis, for the catalogue
                   analysis.parquet the complete analysis, for large runs only
    STORE/.fetched/                 copies of remote logs

A run is written to a temporary folder and renamed when it is complete, so that readers never see half.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stallscope.arrays import arrow
from stallscope.errors import UnreadableError
from stallscope.run import Log, Run, Series

from ..run_names import safe_name
from .fetch import writing
from .generations import Completions
from .layout import MANIFEST, checksum
from .loading import INTERVALS, SERIES, SERIES_SCHEMA, VERSION, load_run
from .manifests import ListedFile, is_collected
from .merge import completions_by_log, is_same_job, merge_runs
from .mirror import Mirror
from .step_files import write_rows

LOCK = ".lock"
# Row groups with fewer rows cost more than they save, and so do more files.
_ROWS_PER_GROUP = 4096
_MOST_FILES = 64


@dataclass(frozen=True)
class WrittenSteps:
    """The result of writing a run's steps."""

    #: The run, with the problems that writing has found.
    run: Run
    rows: int
    #: By name, relative to the run's folder.
    files: Mapping[str, ListedFile]


class StepStorage(Protocol):
    """Reads and writes the steps of collected runs, in this process or on a cluster."""

    def load(self, folder: Path) -> Run:
        """Load a collected run.

        Raises:
            UnreadableError: if the run is damaged.
        """

    def completions(self, steps: pa.Table, logs: int) -> Completions:
        """Return the completions of each log of a merged run.

        Args:
            steps: the rows of all logs in any order, or a stand-in of the storage.
            logs: the number of logs.
        """

    def write(self, run: Run, folder: Path, place: Path) -> WrittenSteps:
        """Write the steps of a run into a new folder ``steps``.

        Args:
            folder: the temporary folder of the run.
            place: the run's final folder.
        """


class _LocalStorage:
    """Reads and writes steps in this process."""

    def load(self, folder: Path) -> Run:
        return load_run(folder)

    def completions(self, steps: pa.Table, logs: int) -> Completions:
        return completions_by_log(steps, logs)

    def write(self, run: Run, folder: Path, place: Path) -> WrittenSteps:
        _write_steps(run.steps, folder / "steps")
        return WrittenSteps(run, run.steps.num_rows, list_files(folder, "steps/*.parquet"))


def save_run(run: Run, store: Path, steps: StepStorage | None = None) -> Path:
    """Write a run into a store; return its folder.

    Logs that were collected earlier and that this run lacks are kept. Another job with the same id
    gets a separate folder.

    Args:
        steps: reads and writes the steps; default: this process.

    Raises:
        UnwritableError: if the run cannot be written; then the store is unchanged.
    """
    # Most commands write nothing.
    from filelock import FileLock

    with writing(store):
        store.mkdir(parents=True, exist_ok=True)
        # Two collectors that save one run take turns: the second adds to the first.
        with FileLock(store / LOCK):
            mirror = Mirror.of(store)
            if mirror is None:
                return _save_once(run, store, steps or _LocalStorage(), mirror)
            # The file's lock is local: at a URL, collectors of other machines save runs, too.
            with mirror.locked(_folder_name(run)):
                place = _save_once(run, store, steps or _LocalStorage(), mirror)
                mirror.upload(place.name)
                return place


def _save_once(run: Run, store: Path, steps: StepStorage, mirror: Mirror | None) -> Path:
    """Merge a run with its saved state and write it; return its folder."""
    place, old = _place(run, store, steps, mirror)
    whole = run if old is None else merge_runs(run, old, steps.completions)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=store))
    try:
        written = steps.write(whole, unfinished, place)
        pq.write_table(whole.intervals, unfinished / INTERVALS)
        _write_series(whole.series, unfinished / SERIES)
        files = {**list_files(unfinished, "*.parquet"), **written.files}
        if mirror is not None:
            files = mirror.rename_new_files(place.name, unfinished, files)
        (unfinished / MANIFEST).write_text(json.dumps(_manifest(written, files), indent=1))
        _move(unfinished, place)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return place


def _place(
    run: Run, store: Path, steps: StepStorage, mirror: Mirror | None
) -> tuple[Path, Run | None]:
    """Return the folder for a run, and the saved run in it, if there is one."""
    name = _folder_name(run)
    for number in itertools.count(1):
        place = store / (name if number == 1 else f"{name}-{number}")
        if mirror is not None:
            mirror.update(place.name)
        if not is_collected(place):
            return place, None
        try:
            old = steps.load(place)
        except UnreadableError:
            return place, None  # damaged: collecting again replaces it
        if old.id == run.id and is_same_job(run, old):
            return place, old
    raise AssertionError("unreachable")


def _folder_name(run: Run) -> str:
    """Return the name of a run's folder, unless another job with the same id has it."""
    name = safe_name(run.id)
    # Different ids must not share a folder.
    ending = "" if name == run.id else f"-{hashlib.sha256(run.id.encode()).hexdigest()[:8]}"
    return name + ending


def _write_steps(steps: pa.Table, folder: Path) -> None:
    folder.mkdir()
    epochs = arrow.numbers(arrow.filled(steps["epoch"], -1))
    for first, last, rows in _epoch_ranges(epochs, len(np.unique(arrow.numbers(steps["log"])))):
        chosen = steps if rows is None else steps.take(arrow.array(rows)).combine_chunks()
        write_rows(chosen, folder / f"epochs-{first:06d}-{last:06d}.parquet")


def _write_series(series: Sequence[Series], path: Path) -> None:
    """Write all values, series by series; write no file if there are none."""
    if not series:
        return
    numbers = np.repeat(
        np.arange(len(series), dtype=np.int32), [len(entry.value) for entry in series]
    )
    columns = {
        "series": numbers,
        "wall_ns": np.concatenate([entry.wall_ns for entry in series]),
        "value": np.concatenate([entry.value for entry in series]),
    }
    arrays = {name: arrow.array(values) for name, values in columns.items()}
    pq.write_table(pa.table(arrays, SERIES_SCHEMA), path)


def _epoch_ranges(
    epochs: npt.NDArray[np.int32], logs: int
) -> list[tuple[int, int, npt.NDArray[np.int64] | None]]:
    """Return ranges of epochs with their rows; None means all rows in order.

    Ranges are as narrow as row groups of some thousand rows allow, so that reading one epoch reads
    little else.
    """
    distinct, counts = np.unique(epochs, return_counts=True)
    if not len(distinct):
        return [(0, 0, None)]
    target = max(_ROWS_PER_GROUP * max(logs, 1), -(-len(epochs) // _MOST_FILES))
    part = (np.cumsum(counts) - counts) // target
    if part[-1] == part[0]:
        return [(max(int(distinct[0]), 0), max(int(distinct[-1]), 0), None)]
    of_row = part[np.searchsorted(distinct, epochs)]
    ranges: list[tuple[int, int, npt.NDArray[np.int64] | None]] = []
    for number in np.unique(part):
        in_part = distinct[part == number]
        ranges.append(
            (max(int(in_part[0]), 0), max(int(in_part[-1]), 0), np.flatnonzero(of_row == number))
        )
    return ranges


def _manifest(written: WrittenSteps, files: Mapping[str, ListedFile]) -> dict[str, Any]:
    run = written.run
    return {
        "stallscope_collected": VERSION,
        "run_id": run.id,
        "name": run.name,
        "source": _from_any_folder(run.source),
        "collected_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "logs": [_log_entry(log) for log in run.logs],
        "rows": written.rows,
        "problems": [asdict(problem) for problem in run.problems],
        "input_times": [asdict(measured) for measured in run.input_times],
        "network_checks": [asdict(check) for check in run.network_checks],
        "events": [asdict(event) for event in run.events],
        "series": [
            {name: getattr(series, name) for name in ("name", "unit", "node", "rank", "where")}
            for series in run.series
        ],
        "files": {name: asdict(file) for name, file in sorted(files.items())},
    }


def _log_entry(log: Log) -> dict[str, Any]:
    """Return what the manifest has of a log; unlike ``asdict``, without copies of all facts."""
    entry = {field.name: getattr(log, field.name) for field in fields(log)}
    return {**entry, "facts": dict(log.facts)}


def _from_any_folder(source: str) -> str:
    """Return the place of logs so that it is the same place from every current folder."""
    is_local = ":" not in source.partition("/")[0] or Path(source).exists()
    return str(Path(source).absolute()) if source and is_local else source


def list_files(folder: Path, pattern: str) -> dict[str, ListedFile]:
    """List the files of a folder with sizes and checksums."""
    return {
        path.relative_to(folder).as_posix(): ListedFile(path.stat().st_size, checksum(path))
        for path in folder.glob(pattern)
    }


def _move(unfinished: Path, place: Path) -> None:
    """Move the finished folder to its place, and remove the old one."""
    unfinished.chmod(0o755)
    if not place.exists():
        unfinished.rename(place)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{place.name}-old-", dir=place.parent))
    place.rename(old / place.name)
    unfinished.rename(place)
    shutil.rmtree(old)
