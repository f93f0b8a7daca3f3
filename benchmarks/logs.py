"""Read from step logs what recording cost."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median


def host_part_us(logs: Path) -> float:
    """Return the recorder's own count of its work around an iteration: the median of the logs' medians.

    Raises:
        ValueError: if no log has a count.
    """
    costs = []
    for path in logs.rglob("*.steps.csv"):
        for line in path.read_text().splitlines():
            if line.startswith("#facts ") and "recorder_cost" in line:
                cost = json.loads(line.partition(" ")[2])["recorder_cost"]
                costs.append(cost["host_us_median"])
    counted = [cost for cost in costs if cost is not None]
    if not counted:
        raise ValueError(f"no log in {logs} has a count of what recording cost")
    return float(median(counted))


def step_rows(logs: Path) -> list[bytes]:
    """Return the rows of steps as they are in the logs."""
    return [
        line
        for path in logs.rglob("*.steps.csv")
        for line in path.read_bytes().splitlines(keepends=True)
        if line.startswith(b"step,")
    ]
