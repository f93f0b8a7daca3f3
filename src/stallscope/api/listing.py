"""The runs of a store as a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import pandas as pd

from stallscope.catalogue.entry import SHARES
from stallscope.catalogue.index import Catalogue
from stallscope.catalogue.listing import entry_content, local_store
from stallscope.catalogue.matching import Baselines
from stallscope.catalogue.where import parse_where

from .frames import Columns, frame

_SHARES = {f"{name}_share": name for name in SHARES}
_COLUMNS: Columns = {
    "id": "text",
    "name": "text",
    "path": "text",
    "source": "text",
    "framework": "name",
    "model": "name",
    "ranks": "index",
    "hosts": "tuple",
    "steps": "count",
    "epochs": "count",
    "batch_size": "count",
    "synthetic": "flag",
    "status": "name",
    "started_at": "moment",
    "collected_at": "moment",
    "bytes": "index",
    "samples_per_second": "number",
    "step_ms": "number",
    "verdict": "name",
    "cause": "name",
    "fault": "flag",
    "goodput": "number",
    "named_ranks": "tuple",
    "named_hosts": "tuple",
    **dict.fromkeys(_SHARES, "number"),
    "baseline": "text",
}


def runs(store: str | PathLike[str] = ".", where: str = "", sort: str = "age") -> pd.DataFrame:
    """List the collected runs of a store by id, without reading their steps.

    Args:
        store: a folder that runs were collected into, or its URL.
        where: only matching runs, as ``stallscope runs --where`` takes it:
            ``model=resnet50 ranks>=8``.
        sort: the field to sort by: numbers from the largest, times from the newest, text from A.

    Raises:
        NotFoundError: if no runs were collected there.
        UsageError: if ``where`` or ``sort`` names an unknown field.
    """
    wanted = parse_where(where)
    with local_store(fspath(store)) as folder, Catalogue.open(folder) as catalogue:
        baselines = Baselines(catalogue)
        rows = [
            _row(entry_content(folder, entry, baselines.of(entry)))
            for entry in catalogue.entries(wanted, sort)
        ]
    return frame(rows, _COLUMNS, ["id"])


def _row(content: Mapping[str, Any]) -> dict[str, Any]:
    shares = content["shares"]
    return {**content, **{column: shares[name] for column, name in _SHARES.items()}}
