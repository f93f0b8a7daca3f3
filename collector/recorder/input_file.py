"""What was measured of a loader, kept beside the logs of the run that it is for.

One file per rank and measurement, ``rank-00003.0.input.json``, written as a whole; none is ever written
over. A measurement that comes before any recording waits in memory for the first one. Where the run's
logs go to MLflow while they grow, so do these.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from .upload import lies_beside_logs

logger = logging.getLogger("stallscope")

VERSION = 1
SUFFIX = ".input.json"


class _Recorded(NamedTuple):
    """Where this process records, or recorded last."""

    folder: Path
    run_id: str


_last: Optional[_Recorded] = None
_waiting: List[Dict[str, Any]] = []


def recorded_in(folder: Path, run_id: str) -> None:
    """A recording of this process has begun: what was measured before is for its run. Never raises."""
    global _last
    _last = _Recorded(folder, run_id)
    while _waiting:
        try:
            _write(folder, {**_waiting.pop(0), "run_id": run_id})
        except Exception as error:
            logger.warning("stallscope: the loader's times are not in %s: %s", folder, error)


def keep(measured: Dict[str, Any], folder: Optional[Path]) -> Optional[Path]:
    """Write a measurement into a folder, or where this process records.

    Returns:
        The file; None where it waits for the first recording.

    Raises:
        OSError: if it cannot be written.
    """
    if folder is None and _last is None:
        _waiting.append(measured)
        return None
    if _last is not None and folder in (None, _last.folder):
        return _write(_last.folder, {**measured, "run_id": _last.run_id})
    assert folder is not None
    return _write(folder, measured)


def _write(folder: Path, measured: Dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / (".rank-%05d.%d.unfinished" % (measured["rank"], os.getpid()))
    unfinished.write_text(json.dumps(measured, separators=(",", ":")) + "\n")
    try:
        for number in itertools.count():
            path = folder / ("rank-%05d.%d%s" % (measured["rank"], number, SUFFIX))
            with contextlib.suppress(FileExistsError):
                _put(unfinished, path)
                lies_beside_logs(path)
                return path
        raise AssertionError("unreachable: itertools.count() does not end")
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()


def _put(unfinished: Path, path: Path) -> None:
    """Give a file its name.

    Raises:
        FileExistsError: if there is one of that name.
    """
    try:
        os.link(str(unfinished), str(path))
    except FileExistsError:
        raise
    except OSError:
        # A file system without links; no other process has this rank.
        if path.exists():
            raise FileExistsError(str(path)) from None
        unfinished.replace(path)
