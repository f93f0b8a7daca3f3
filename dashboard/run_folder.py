"""Find the folders on this machine that runs were read from, and whether their logs still grow."""

from __future__ import annotations

import time
from pathlib import Path

from stallscope.formatting.numbers import rough_duration
from stallscope.run import Run

# Long steps, validation and checkpoints pause logs that are still being recorded.
_LONGEST_PAUSE_S = 60.0


def local_folder(run: Run) -> Path | None:
    """Return the folder that a run was read from; None if it is remote or deleted."""
    if "://" in run.source:
        return None
    path = Path(run.source)
    try:
        return path if path.is_dir() else path.parent if path.is_file() else None
    except (OSError, ValueError):
        return None


def recording_folder(run: Run) -> Path | None:
    """Return the folder that a run is being recorded into; None if the run has ended or is remote."""
    return local_folder(run) if run.status == "open" else None


def followed_folder(run: Run) -> Path | None:
    """Return the folder whose step logs can be followed; None for other programs' logs, too."""
    return recording_folder(run) if run.lacks_end else None


def log_silence_s(run: Run) -> float | None:
    """Return for how many seconds the logs of a run without an end have not grown; None if unknown."""
    folder = recording_folder(run)
    changes = [] if folder is None else [_changed_at(folder / log.path) for log in run.logs]
    latest = max((change for change in changes if change is not None), default=None)
    return None if latest is None else max(time.time() - latest, 0.0)


def has_logs(run: Run) -> bool:
    """Return whether a log of the run is on this machine."""
    folder = local_folder(run)
    return folder is not None and any((folder / log.path).exists() for log in run.logs)


def is_recording(silence_s: float | None) -> bool:
    """Return whether logs without an end grew so recently that the job still writes them."""
    return silence_s is not None and silence_s < _LONGEST_PAUSE_S


def silence_sentence(silence_s: float) -> str:
    """Say for how long logs without an end have not grown, and why that may be."""
    return (
        f"The logs have no end and have not grown for {rough_duration(silence_s)}: the job was killed, "
        "hangs, or pauses for long."
    )


def _changed_at(log: Path) -> float | None:
    try:
        return log.stat().st_mtime
    except OSError:
        return None
