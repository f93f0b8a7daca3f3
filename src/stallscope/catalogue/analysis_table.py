"""The results of an analysis as a table, so that a run need not be analysed again.

The table has a row per step of the ledger, and everything that is not per step as JSON in the
metadata of its schema. What is per step and rank is not in it: that is made from the run's steps
again, in a third of the time that tests, intervals and replays take, on demand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
from cattrs.preconf.json import make_converter

from stallscope import analysis, arrays
from stallscope.analysis.ledger.generations import Generations
from stallscope.analysis.ledger.ledger import CAUSES, ENTRIES, GAPS, Ledger
from stallscope.analysis.ledger.recalled import PER_RANK, RecalledLedger, causes_of, entries_of
from stallscope.analysis.result import Analysis
from stallscope.run import Run

#: What an analysis is of, or is made of anew from the run's steps.
_NOT_FOUND = {"run", "ledger", "warm_up", "steady", "baseline", "single"}
_FOUND = tuple(field.name for field in fields(Analysis) if field.name not in _NOT_FOUND)
_PER_STEP = tuple(
    field.name
    for field in fields(Ledger)
    if field.name not in (*PER_RANK, "ranks", "gaps", "boundary_sd")
)
_FOUND_KEY, _LEDGER_KEY = b"found", b"ledger"
_CONVERTER = make_converter(forbid_extra_keys=True)


@cache
def code_state() -> str:
    """Return a fingerprint of the code that analyses: other code may find something else."""
    digest = hashlib.sha256()
    for package in (analysis, arrays):
        for file in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def found_in(analysis: Analysis) -> pa.Table:
    """Everything that an analysis has found."""
    types = _types()
    found = {
        name: _CONVERTER.unstructure(getattr(analysis, name), unstructure_as=types[name])
        for name in _FOUND
    }
    ledger = analysis.ledger
    whole = None if ledger is None else {"ranks": ledger.ranks, "boundary_sd": ledger.boundary_sd}
    return pa.table(
        {} if ledger is None else _columns(analysis, ledger),
        metadata={
            key: json.dumps(content, default=_plain)
            for key, content in ((_FOUND_KEY, found), (_LEDGER_KEY, whole))
        },
    )


def recalled(
    table: pa.Table, run: Run, baseline: Analysis | None, single: Analysis | None
) -> Analysis:
    """The analysis of a run, of which everything has been found before.

    Args:
        table: as ``found_in`` gave it.
        run: the run that was analysed.
        baseline: what it was held against.
        single: likewise.

    Raises:
        cattrs.BaseValidationError, ValueError, TypeError, AttributeError, KeyError: if the table is not
            as it was written.
    """
    types = _types()
    metadata = table.schema.metadata or {}
    found = json.loads(metadata[_FOUND_KEY])
    known = {name: _CONVERTER.structure(found[name], types[name]) for name in _FOUND}
    ledgers = _Ledgers(run, table, json.loads(metadata[_LEDGER_KEY]))
    return Analysis(
        run=run,
        ledger=ledgers.whole,
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
    """The ledger of all steps, and of the steady ones, from what is known of each step."""

    def __init__(self, run: Run, table: pa.Table, of_all: Mapping[str, Any] | None) -> None:
        self._run = run
        self._making = Lock()
        self._made: tuple[Ledger | None, Ledger | None] | None = None
        self.whole = self.steady = None
        self.warm_up = np.zeros(0, bool)
        if of_all is None:
            return
        columns = {name: table[name].to_numpy() for name in table.column_names}
        self.warm_up = columns["warm_up"]
        of_all = {"ranks": tuple(of_all["ranks"]), "boundary_sd": float(of_all["boundary_sd"])}
        everything = np.ones(len(self.warm_up), bool)
        self.whole = _ledger(columns, everything, of_all, lambda: self._make()[0])
        if not self.warm_up.all():
            self.steady = _ledger(columns, ~self.warm_up, of_all, lambda: self._make()[1])

    def _make(self) -> tuple[Ledger | None, Ledger | None]:
        """Both of them from the run's steps, once; without the timestamps that they are made from."""
        with self._making:
            if self._made is None:
                made = Generations.of(self._run)
                self._made = made.ledger, made.steady
            return self._made


def _ledger(
    columns: Mapping[str, Any], chosen: Any, of_all: Mapping[str, Any], make: Any
) -> RecalledLedger:
    own = {name: values[chosen] for name, values in columns.items()}
    gaps = np.stack([own[f"gap_{name}"] for name in GAPS], axis=1)
    per_step = {name: own[name] for name in _PER_STEP}
    entries = {name: own[f"entry_{name}"] for name in ENTRIES}
    causes = {name: own[f"cause_{name}"] for name in CAUSES}
    return RecalledLedger.recalled({**of_all, **per_step, "gaps": gaps}, entries, causes, make)


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(Analysis)


def _plain(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written")
