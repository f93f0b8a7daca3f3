"""Analyses of large collected runs, remembered beside them: one takes seconds, recalling it none."""

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

from .analysis_table import code_state, found_in, recalled

#: Takes a run apart, against its baseline and the one on one rank.
Analyse = Callable[[Run, Run | Analysis | None, Run | Analysis | None], Analysis]

_VERSION = 1
_OF = b"of"
# Those of fewer rows are analysed before anybody notices.
_ROWS = 500_000
# Errors of reading a file of another program.
_NOT_AS_WRITTEN = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
    BaseValidationError,
)


@dataclass(frozen=True)
class Placed:
    """A run and where it is."""

    run: Run
    #: The folder that it was collected into; None of one that is in memory only.
    folder: Path | None = None
    #: Tells one state of its manifest from another.
    manifest: str = ""


def analysed(
    own: Placed,
    baseline: Placed | None = None,
    single: Placed | None = None,
    analyse: Analyse = analyse,
) -> Analysis:
    """What ``analyse`` finds, from beside the run if that has been found before.

    A folder holds what was found last. It is made again after any change of the runs, or of the code
    that analyses; a folder that takes nothing, or holds something else, costs the time to analyse.

    Args:
        own: the run.
        baseline: the same job on synthetic data.
        single: the same job on synthetic data and one rank.
        analyse: takes a run apart where nothing is remembered.
    """
    others = (baseline, single)
    if any(one is not None and one.folder is None for one in (own, *others)):
        return analyse(own.run, *(None if one is None else one.run for one in others))
    assert own.folder is not None
    found = _remembered(own.folder, _identity(own, baseline, single))
    base, alone = (None if one is None else analysed(one, analyse=analyse) for one in others)
    if found is not None:
        with suppress(*_NOT_AS_WRITTEN):
            return recalled(found, own.run, base, alone)
    made = analyse(own.run, base, alone)
    if own.run.rows >= _ROWS:
        _remember(made, _identity(own, baseline, single), own.folder)
    return made


def _remembered(folder: Path, identity: bytes) -> pa.Table | None:
    try:
        table = pq.read_table(folder / ANALYSIS)
    except (OSError, pa.ArrowException):
        return None  # there is none, or not as it was written
    return table if (table.schema.metadata or {}).get(_OF) == identity else None


def _identity(own: Placed, baseline: Placed | None, single: Placed | None) -> bytes:
    """What an analysis depends on."""
    others = {"baseline": baseline, "single": single}
    content = {
        "version": _VERSION,
        "code": code_state(),
        "run": own.manifest,
        **{name: None if one is None else one.manifest for name, one in others.items()},
    }
    return json.dumps(content).encode()


def _remember(analysis: Analysis, identity: bytes, folder: Path) -> None:
    table = found_in(analysis)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _OF: identity})
    # Where nothing can be written, it is analysed again next time.
    with suppress(OSError), written_whole(folder / ANALYSIS, folder.parent) as draft:
        pq.write_table(table, draft)
