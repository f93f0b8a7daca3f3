"""What the user asked the recorder for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Optional


class Options(NamedTuple):
    """The arguments of StepLogger that every framework's has."""

    log_dir: Path
    run_name: Optional[str]
    synthetic: bool
    batch_size: Optional[int]
    flush_seconds: float
    stages: bool
