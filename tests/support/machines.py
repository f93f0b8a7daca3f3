"""MLflow's machine series during a run, as collecting writes them into the folder of logs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stallscope.run import Run

NAME = "metrics.mlflow.json"
#: Milliseconds since 1970, and values.
History = tuple[list[int], list[float]]


def began_ms(run: Run) -> int:
    assert run.started_at is not None
    return round(run.started_at.timestamp() * 1000)


def history(begin_ms: int, values: Sequence[float], apart_ms: int = 250) -> History:
    """Return values at equal distances."""
    return [begin_ms + apart_ms * number for number in range(len(values))], list(values)


def write_metrics(folder: Path, machines: Mapping[str, Any], **more: Any) -> Path:
    """Write the file into a folder with logs."""
    content = {
        "stallscope_mlflow": 1,
        "run_id": "abc",
        "where": "mlflow:abc",
        "params": {},
        "metrics": {},
        "system_metrics": machines,
        **more,
    }
    path = folder / NAME
    path.write_text(json.dumps(content))
    return path
