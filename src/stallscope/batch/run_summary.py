"""Summarise a run without tables and host names: its identity, and the facts that match baselines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from stallscope.analysis.gains.baseline import COMPARED
from stallscope.arrays import arrow
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Log, Run

#: The summary as JSON.
RunSummary = Mapping[str, Any]

_FACTS = (*COMPARED, "run_name", "synthetic", "gradient_bytes")


def summarise(run: Run) -> RunSummary:
    """Summarise a run; the size does not depend on its number of ranks."""
    content = {
        "id": run.id,
        "hosts": len(run.hosts),
        "ended": run.status == "completed",
        "place_warnings": run.place_warnings,
        "facts": {
            **{name: run.fact(name) for name in _FACTS},
            "size": run.size,
            "anchor": {"wall_ns": _nanoseconds(run.started_at)},
        },
    }
    # Through JSON, so that fresh facts equal those that are read from a file.
    return dict(json.loads(json.dumps(content, default=str)))


def run_of_summary(content: RunSummary) -> Run:
    """Return a Run with the facts of a summary; its hosts have other names.

    Raises:
        KeyError, TypeError: if the content is not a summary.
    """
    hosts = range(max(1, int(content["hosts"])))
    facts = dict(content["facts"])
    return Run(
        id=str(content["id"]),
        source="",
        logs=tuple(
            Log("", 0, 0, part, {"host": f"host-{part}", **(facts if not part else {})}, ended)
            for part, ended in ((part, bool(content["ended"])) for part in hosts)
        ),
        steps=arrow.empty_table(STEPS_SCHEMA),
        intervals=arrow.empty_table(INTERVALS_SCHEMA),
        # Earlier versions wrote none.
        place_warnings=tuple(map(str, content.get("place_warnings", ()))),
    )


def _nanoseconds(moment: datetime | None) -> int:
    return 0 if moment is None else int(moment.timestamp() * 1e9)
