"""Store measured loader times next to the logs of their run.

Each rank and measurement has one file, ``rank-00003.0.input.json``. It is written as a whole, and an
existing file is never overwritten. A measurement made before any recording waits in memory for the
first one. Where the run's logs are uploaded to MLflow during training, so are these files.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from ..step_log.new_files import write_new
from ..subprocesses.upload import upload_companion_file

logger = logging.getLogger("stallscope")

VERSION = 1
SUFFIX = ".input.json"


class _Recorded(NamedTuple):
    """The folder and run of this process's latest recording."""

    folder: Path
    run_id: str


_latest: Optional[_Recorded] = None
_waiting: List[Dict[str, Any]] = []


def recording_started(folder: Path, run_id: str) -> None:
    """Note that a recording has started; earlier measurements belong to its run. Never raises."""
    global _latest
    _latest = _Recorded(folder, run_id)
    while _waiting:
        try:
            _write(folder, {**_waiting.pop(0), "run_id": run_id})
        except Exception as error:
            logger.warning("stallscope: the loader's times are not in %s: %s", folder, error)


def save(measured: Dict[str, Any], folder: Optional[Path]) -> Optional[Path]:
    """Write a measurement into a folder, or into the folder of this process's recording.

    Returns:
        The file; None where the measurement waits for the first recording.

    Raises:
        OSError: if writing fails.
    """
    if folder is None and _latest is None:
        _waiting.append(measured)
        return None
    if _latest is not None and folder in (None, _latest.folder):
        return _write(_latest.folder, {**measured, "run_id": _latest.run_id})
    assert folder is not None
    return _write(folder, measured)


def _write(folder: Path, measured: Dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(measured, separators=(",", ":")) + "\n"
    path = write_new(folder, "rank-%05d" % measured["rank"], SUFFIX, text)
    upload_companion_file(path)
    return path
