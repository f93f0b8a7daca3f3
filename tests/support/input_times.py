"""Write measurements of loaders as ``measure_input`` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def measured(**changes: Any) -> dict[str, Any]:
    """Return nine batches of 8 ms after a slow first one, most of it augmentation."""
    content = {
        "stallscope_input": 1,
        "recorder": "0.1.0",
        "framework": "tensorflow",
        "run_id": None,
        "launch": None,
        "rank": 0,
        "size": 1,
        "host": "alpha",
        "began_wall_ns": 1_700_000_000_000_000_000,
        "kind": "tf.data",
        "batch_us": [90_000, *[8000] * 9],
        "warm_up": 1,
        "ms": 8.0,
        "ci95_ms": [7.8, 8.2],
        "samples_per_batch": 32.0,
        "ended": False,
        "error": None,
        "stages": [
            {"kind": "read", "name": "TFRecord", "ms": 1.5, "ci95_ms": [1.0, 2.0]},
            {"kind": "augment", "name": "Map(flip)", "ms": 6.5, "ci95_ms": None},
        ],
        "no_stages": None,
    }
    return {**content, **changes}


def write_measured(folder: Path, **changes: Any) -> Path:
    """Write one rank's file into a folder."""
    content = measured(**changes)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank-{content['rank']:05d}.0.input.json"
    path.write_text(json.dumps(content) + "\n")
    return path
