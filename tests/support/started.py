"""Jobs with a given start time."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path


def began_at(folder: Path, moment: datetime | None) -> None:
    """Set the start of all logs in a folder; None: the start is unknown."""
    for path in folder.glob("*.steps.csv"):
        head, _, rest = path.read_text().partition("\n")
        mark, version, facts = head.split(" ", 2)
        content = json.loads(facts)
        content["anchor"]["wall_ns"] = 0 if moment is None else int(moment.timestamp() * 1e9)
        path.write_text(f"{mark} {version} {json.dumps(content)}\n{rest}")
