"""A store of collected runs: a folder with one folder per run, readable without the original logs.

    STORE/<run id>/manifest.json    what the run is, its logs with their facts, checksums
                   steps.parquet    one row group per log, so that one rank can be read alone
                   intervals.parquet

A run is written beside its place and moved there when it is whole: nothing half is ever shown.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stallscope.errors import UnknownVersionError, UnreadableError
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Log, Problem, Run
from stallscope.safe_names import safe_name

MANIFEST = "manifest.json"
_VERSION = 1
_TABLES = {"steps": STEPS_SCHEMA, "intervals": INTERVALS_SCHEMA}


def save_run(run: Run, store: Path) -> Path:
    """Write a run into a store; a run of the same id is replaced as a whole.

    Returns:
        The run's folder.
    """
    store.mkdir(parents=True, exist_ok=True)
    place = store / safe_name(run.id)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=store))
    try:
        _write_steps(run.steps, unfinished / "steps.parquet")
        pq.write_table(run.intervals, unfinished / "intervals.parquet")
        (unfinished / MANIFEST).write_text(json.dumps(_manifest(run, unfinished), indent=1))
        _move(unfinished, place)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return place


def is_collected(path: Path) -> bool:
    """Whether a folder is a collected run."""
    return (path / MANIFEST).is_file()


def collected_runs(store: Path) -> list[Path]:
    """The folders of the runs in a store."""
    if not store.is_dir():
        return []
    return sorted(path for path in store.iterdir() if path.name[0] != "." and is_collected(path))


def load_run(path: Path) -> Run:
    """Read a collected run back.

    Raises:
        UnreadableError: if a part of it is missing or damaged.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        version = manifest["stallscope_collected"]
        if version > _VERSION:
            raise UnknownVersionError(
                f"{path}: collected by a newer Stallscope (format {version}, this one knows "
                f"{_VERSION}): upgrade it with pip install --upgrade stallscope"
            )
        tables = {
            name: pq.read_table(path / f"{name}.parquet").cast(schema).combine_chunks()
            for name, schema in _TABLES.items()
        }
        return Run(
            id=manifest["run_id"],
            source=manifest["source"],
            logs=tuple(Log(**log) for log in manifest["logs"]),
            problems=tuple(Problem(**problem) for problem in manifest["problems"]),
            **tables,
        )
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise UnreadableError(
            f"{path}: the collected run is damaged ({error}); collect it again"
        ) from error


def _write_steps(steps: pa.Table, path: Path) -> None:
    with pq.ParquetWriter(path, steps.schema) as writer:
        logs = steps["log"].to_numpy()
        edges = np.flatnonzero(np.diff(logs, prepend=-1, append=-1))
        for begin, end in zip(edges[:-1], edges[1:], strict=True):
            writer.write_table(steps.slice(begin, end - begin))


def _manifest(run: Run, folder: Path) -> dict[str, Any]:
    return {
        "stallscope_collected": _VERSION,
        "run_id": run.id,
        "name": run.name,
        "source": run.source,
        "collected_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "logs": [{**asdict(log), "facts": dict(log.facts)} for log in run.logs],
        "problems": [asdict(problem) for problem in run.problems],
        "files": {
            f"{name}.parquet": {
                "size": (folder / f"{name}.parquet").stat().st_size,
                "sha256": _checksum(folder / f"{name}.parquet"),
            }
            for name in _TABLES
        },
    }


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
