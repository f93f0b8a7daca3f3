"""Find the folders on this machine that runs were read from."""

from __future__ import annotations

from pathlib import Path

from stallscope.run import Run


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
