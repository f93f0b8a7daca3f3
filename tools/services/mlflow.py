"""Run a tracking server of MLflow: runs in SQLite, artifacts through the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .server import ENVIRONMENT, answers_http, free_port, running


@contextmanager
def mlflow_server(folder: Path, port: int | None = None) -> Iterator[str]:
    """Run a server for the duration of the block; yield its tracking URI.

    With a folder and a port that were used before, it has the earlier runs.
    """
    port = port or free_port()
    uri = f"http://127.0.0.1:{port}"
    command: list[str | Path] = [
        ENVIRONMENT / "bin" / "mlflow",
        "server",
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
        *("--serve-artifacts", "--artifacts-destination", f"{folder}/artifacts"),
    ]
    # Without telemetry, and without workers for jobs that no test submits.
    quiet = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    with running(command, folder, lambda: answers_http(f"{uri}/health"), quiet):
        yield uri
