"""Write the file with the measurement, next to the logs of the run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

from stallscope import __version__
from stallscope.collector.recorder.job.launch import launch_name
from stallscope.collector.recorder.job.settings import settings
from stallscope.collector.recorder.step_log.new_files import write_new
from stallscope.errors import UnwritableError

from .measuring import Measured
from .ranks import Ranks
from .sizes import Gradients

VERSION = 1
SUFFIX = ".netcheck.json"


def document(
    ranks: Ranks,
    hosts: Sequence[str],
    run_id: Optional[str],
    gradients: Optional[Gradients],
    measured: Measured,
    began_wall_ns: int,
    seconds: float,
    env: Mapping[str, str],
) -> Dict[str, Any]:
    """Return the file's content."""
    return {
        "stallscope_netcheck": VERSION,
        "stallscope": __version__,
        "run_id": run_id,
        "launch": launch_name(env, ranks.size),
        "began_wall_ns": began_wall_ns,
        "seconds": round(seconds, 3),
        "framework": ranks.framework,
        "reduced_by": ranks.reduced_by,
        "reduces_with": ranks.reduces_with,
        "device": ranks.device,
        "size": ranks.size,
        "hosts": list(hosts),
        "settings": settings(env),
        "versions": ranks.versions,
        "gradients": _gradients(gradients, measured),
        "sweep": [point._asdict() for point in measured.sweep],
        "tiny": [tiny._asdict() for tiny in measured.tiny],
        "pairs": [pair._asdict() for pair in measured.pairs],
        "left_out": measured.left_out,
    }


def _gradients(gradients: Optional[Gradients], measured: Measured) -> Optional[Dict[str, Any]]:
    if gradients is None:
        return None
    return {
        "from": gradients.source,
        "sizes": gradients.sizes,
        "as_run_us": measured.as_run_us,
        "together_us": measured.together_us,
    }


def check_writable(folder: Path) -> None:
    """Make the folder, and check that files can be written there.

    Raises:
        UnwritableError: if not. An error now is better than after measuring.
    """
    probe = folder / (".netcheck.%d.unfinished" % os.getpid())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UnwritableError(
            "cannot write to %s (%s): pass --out FOLDER for another place"
            % (folder, error.strerror)
        ) from None


def save(content: Dict[str, Any], folder: Path) -> Path:
    """Write a file as a whole; an existing one is never overwritten.

    Raises:
        UnwritableError: if writing fails.
    """
    began = time.gmtime(content["began_wall_ns"] / 1e9)
    text = json.dumps(content, separators=(",", ":")) + "\n"
    try:
        return write_new(folder, time.strftime("%Y%m%dT%H%M%SZ", began), SUFFIX, text)
    except OSError as error:
        raise UnwritableError(
            "cannot write the result to %s (%s): pass --out FOLDER for another place"
            % (folder, error.strerror)
        ) from None
