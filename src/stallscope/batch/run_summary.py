"""A run without its tables and without names of hosts: what it is, and what baselines are matched on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from stallscope.analysis.gains.baseline import COMPARED
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Log, Run

#: What is kept as JSON.
Sketch = Mapping[str, Any]

_FACTS = (*COMPARED, "run_name", "synthetic", "gradient_bytes")


def sketch(run: Run) -> Sketch:
    """What is kept of a run; a thousand of them are small, however many ranks they have."""
    content = {
        "id": run.id,
        "hosts": len(run.hosts),
        "ended": run.status == "completed",
        "facts": {
            **{name: run.fact(name) for name in _FACTS},
            "size": run.size,
            "anchor": {"wall_ns": _nanoseconds(run.started_at)},
        },
    }
    # Facts that come from a file again must equal those that have just been read.
    return dict(json.loads(json.dumps(content, default=str)))


def sketched(content: Sketch) -> Run:
    """A Run that can be asked for what was kept; its hosts have other names.

    Raises:
        KeyError, TypeError: if this is no sketch.
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
        steps=STEPS_SCHEMA.empty_table(),
        intervals=INTERVALS_SCHEMA.empty_table(),
    )


def _nanoseconds(moment: datetime | None) -> int:
    return 0 if moment is None else int(moment.timestamp() * 1e9)
