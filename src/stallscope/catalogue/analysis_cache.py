"""Cache analyses of large collected runs in their folders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cattrs import BaseValidationError
from cattrs.preconf.json import make_converter

from stallscope import analysis, arrays, words
from stallscope.analysis import Analysis, analyse
from stallscope.analysis.ledger.by_generation import Generations
from stallscope.analysis.ledger.ledger import (
    GAPS,
    PER_RANK,
    CachedLedger,
    Ledger,
    causes_of,
    entries_of,
)
from stallscope.arrays import arrow
from stallscope.collector.store.layout import ANALYSIS, written_whole
from stallscope.run import Run
from stallscope.words import CAUSES, ENTRIES, Fix

#: Analyses a run with its baseline and its run on one rank.
Analyse = Callable[[Run, Run | Analysis | None, Run | Analysis | None], Analysis]
_VERSION = 2
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

#: Fields that are inputs, or are computed from the run's steps.
_EXCLUDED = {"run", "ledger", "warm_up", "steady", "baseline", "single"}
_FIELDS = tuple(field.name for field in fields(Analysis) if field.name not in _EXCLUDED)
_PER_STEP = tuple(
    field.name
    for field in fields(Ledger)
    if field.name not in (*PER_RANK, "ranks", "gaps", "boundary_sd")
)
_FIELDS_KEY, _LEDGER_KEY = b"found", b"ledger"
_CONVERTER = make_converter(forbid_extra_keys=True)
_CONVERTER.register_unstructure_hook(Fix, str)
_CONVERTER.register_structure_hook(Fix, lambda text, _: Fix.parse(text))


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


# -- Convert the results of an analysis to a table and back, to cache them ------------------------
#
# The table has a row per step of the ledger. Results that are not per step are JSON in the metadata
# of its schema. Results per step and rank are not in the table; they are computed from the run's
# steps on demand, in a third of the time of an analysis.


@cache
def code_state() -> str:
    """Return a fingerprint of the analysis code, because other code may have other results."""
    digest = hashlib.sha256()
    folders = [Path(package.__path__[0]) for package in (analysis, arrays)]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    for file in (*files, Path(words.__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def table_of(analysis: Analysis) -> pa.Table:
    """Return all results of an analysis as a table."""
    types = _types()
    results = {
        name: _CONVERTER.unstructure(getattr(analysis, name), unstructure_as=types[name])
        for name in _FIELDS
    }
    ledger = analysis.ledger
    all_steps = (
        None if ledger is None else {"ranks": ledger.ranks, "boundary_sd": ledger.boundary_sd}
    )
    return pa.table(
        {
            name: arrow.array(values)
            for name, values in ({} if ledger is None else _columns(analysis, ledger)).items()
        },
        metadata={
            key: json.dumps(content, default=_to_json)
            for key, content in ((_FIELDS_KEY, results), (_LEDGER_KEY, all_steps))
        },
    )


def from_cache(
    table: pa.Table, run: Run, baseline: Analysis | None, single: Analysis | None
) -> Analysis:
    """Return the analysis of a run from its table.

    Args:
        table: a table of ``table_of``.
        run: the run.
        baseline: the analysis of its baseline.
        single: the analysis of its run on one rank.

    Raises:
        cattrs.BaseValidationError, ValueError, TypeError, AttributeError, KeyError: if the table is
            malformed.
    """
    types = _types()
    metadata = table.schema.metadata or {}
    results = json.loads(metadata[_FIELDS_KEY])
    known = {name: _CONVERTER.structure(results[name], types[name]) for name in _FIELDS}
    run.recall_incomplete_ranks(known["coverage"].incomplete)
    ledgers = _Ledgers(run, table, json.loads(metadata[_LEDGER_KEY]))
    return Analysis(
        run=run,
        ledger=ledgers.all_steps,
        warm_up=ledgers.warm_up,
        steady=ledgers.steady,
        baseline=baseline,
        single=single,
        **known,
    )


def _columns(analysis: Analysis, ledger: Ledger) -> dict[str, Any]:
    return {
        "warm_up": analysis.warm_up,
        **{name: getattr(ledger, name) for name in _PER_STEP},
        **{f"gap_{name}": ledger.gaps[:, index] for index, name in enumerate(GAPS)},
        **{f"entry_{name}": values for name, values in entries_of(ledger).items()},
        **{f"cause_{name}": values for name, values in causes_of(ledger).items()},
    }


class _Ledgers:
    """The ledgers of all steps and of the steady steps, from the columns of a table."""

    def __init__(self, run: Run, table: pa.Table, constants: Mapping[str, Any] | None) -> None:
        self._run = run
        self._lock = Lock()
        self._rebuilt: tuple[Ledger | None, Ledger | None] | None = None
        self.all_steps = self.steady = None
        self.warm_up = np.zeros(0, bool)
        if constants is None:
            return
        columns = {name: arrow.numbers(table[name]) for name in table.column_names}
        self.warm_up = columns["warm_up"]
        constants = {
            "ranks": tuple(constants["ranks"]),
            "boundary_sd": float(constants["boundary_sd"]),
        }
        everything = np.ones(len(self.warm_up), bool)
        self.all_steps = _ledger(columns, everything, constants, lambda: self._rebuild()[0])
        if not self.warm_up.all():
            self.steady = _ledger(columns, ~self.warm_up, constants, lambda: self._rebuild()[1])

    def _rebuild(self) -> tuple[Ledger | None, Ledger | None]:
        """Compute both ledgers from the run's steps, once."""
        with self._lock:
            if self._rebuilt is None:
                rebuilt = Generations.of(self._run)
                self._rebuilt = rebuilt.ledger, rebuilt.steady
            return self._rebuilt


def _ledger(
    columns: Mapping[str, Any], chosen: Any, constants: Mapping[str, Any], rebuild: Any
) -> CachedLedger:
    selected = {name: values[chosen] for name, values in columns.items()}
    gaps = np.stack([selected[f"gap_{name}"] for name in GAPS], axis=1)
    per_step = {name: selected[name] for name in _PER_STEP}
    entries: dict[str, Any] = {name: selected[f"entry_{name}"] for name in ENTRIES}
    causes: dict[str, Any] = {name: selected[f"cause_{name}"] for name in CAUSES}
    return CachedLedger.from_cache(
        {**constants, **per_step, "gaps": gaps}, entries, causes, rebuild
    )


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(Analysis)


def _to_json(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written")
