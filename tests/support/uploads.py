"""Upload logs to MLflow, and observe the processes that do so during training."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stallscope.collector.mlflow.upload import Uploaded


def upload_folder(folder: Path | str, run_id: str) -> Uploaded:
    """Upload the logs of a local folder."""
    from stallscope.collector.mlflow.upload import upload_logs
    from stallscope.collector.sources.files import Files

    return upload_logs(Files(str(folder)), run_id)


def uploaders(run_id: str) -> list[int]:
    """Return the processes of this machine that upload to a run."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if run_id.encode() in words and any(b"collector.mlflow.process" in word for word in words):
            pids.append(int(path.parent.name))
    return pids


def end_uploads(run_id: str) -> None:
    """End uploads that still run when a test is over."""
    for pid in uploaders(run_id):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
