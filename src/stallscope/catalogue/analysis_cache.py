"""Cache analyses of large collected runs in their folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from cattrs import BaseValidationError

from stallscope.analysis import Analysis, analyse
from stallscope.collector.store.layout import ANALYSIS, written_whole
from stallscope.run import Run

from .analysis_table import code_state, from_cache, table_of

#: Analyses a run with its baseline and its run on one rank.
Analyse = Callable[[Run, Run | Analysis | None, Run | Analysis | None], Analysis]

_VERSION = 1
_IDENTITY_KEY = b"of"
# Smaller runs are analysed in a moment.
_FEWEST_ROWS = 500_000
# Errors of reading a file of another program.
_MALFORMED = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
    BaseValidationError,
)


@dataclass(frozen=True)
class StoredRun:
    """A run and its folder."""

    run: Run
    #: The folder of the collected run; None for a run in memory.
    folder: Path | None = None
    #: The checksum of its manifest.
    manifest: str = ""


def cached_analysis(
    stored: StoredRun,
    baseline: StoredRun | None = None,
    single: StoredRun | None = None,
    analyse: Analyse = analyse,
) -> Analysis:
    """Return the analysis of a run, from the cache in its folder if that is current.

    A folder has one cached analysis, which is replaced after any change of the runs or of the analysis
    code. Without a usable cache, the run is analysed.

    Args:
        stored: the run.
        baseline: the same job on synthetic data.
        single: the same job on synthetic data and one rank.
        analyse: analyses a run that is not in the cache.
    """
    others = (baseline, single)
    if any(run is not None and run.folder is None for run in (stored, *others)):
        return analyse(stored.run, *(None if base is None else base.run for base in others))
    assert stored.folder is not None
    table = _load(stored.folder, _identity(stored, baseline, single))
    baseline_analysis, single_analysis = (
        None if base is None else cached_analysis(base, analyse=analyse) for base in others
    )
    if table is not None:
        with suppress(*_MALFORMED):
            return from_cache(table, stored.run, baseline_analysis, single_analysis)
    analysis = analyse(stored.run, baseline_analysis, single_analysis)
    if stored.run.rows >= _FEWEST_ROWS:
        _save(analysis, _identity(stored, baseline, single), stored.folder)
    return analysis


def _load(folder: Path, identity: bytes) -> pa.Table | None:
    try:
        # Reading a dataset imports pandas.
        with pq.ParquetFile(folder / ANALYSIS) as file:
            table = file.read()
    except (OSError, pa.ArrowException):
        return None  # the file is missing or damaged
    return table if (table.schema.metadata or {}).get(_IDENTITY_KEY) == identity else None


def _identity(stored: StoredRun, baseline: StoredRun | None, single: StoredRun | None) -> bytes:
    """Return the inputs of an analysis as bytes."""
    others = {"baseline": baseline, "single": single}
    content = {
        "version": _VERSION,
        "code": code_state(),
        "run": stored.manifest,
        **{name: None if base is None else base.manifest for name, base in others.items()},
    }
    return json.dumps(content).encode()


def _save(analysis: Analysis, identity: bytes, folder: Path) -> None:
    table = table_of(analysis)
    table = table.replace_schema_metadata(
        {**(table.schema.metadata or {}), _IDENTITY_KEY: identity}
    )
    # If the cache cannot be written, the run is analysed again next time.
    with suppress(OSError), written_whole(folder / ANALYSIS, folder.parent) as draft:
        pq.write_table(table, draft)
