"""Run a store with Google Cloud Storage's API (gcp-storage-emulator); it checks no credentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .server import ENVIRONMENT, answers_http, free_port, running

BUCKET = "stallscope"


@dataclass(frozen=True)
class Gcs:
    """A store with one empty bucket."""

    endpoint: str
    bucket: str = BUCKET

    def settings(self) -> dict[str, str]:
        """Return the environment variables by which clients of Google Cloud Storage find it."""
        return {
            "STORAGE_EMULATOR_HOST": self.endpoint,
            # Without it, clients that have no login look for a Google machine's.
            "NO_GCE_CHECK": "true",
        }


@contextmanager
def gcs_server(folder: Path, port: int | None = None) -> Iterator[Gcs]:
    """Run a store for the duration of the block; it starts empty, as all is in memory."""
    port = port or free_port()
    gcs = Gcs(f"http://127.0.0.1:{port}")
    command: list[str | Path] = [
        *(ENVIRONMENT / "bin" / "gcp-storage-emulator", "start", "--in-memory", "--quiet"),
        *("--host", "127.0.0.1", "--port", str(port), "--default-bucket", gcs.bucket),
    ]
    with running(command, folder, lambda: answers_http(gcs.endpoint)):
        yield gcs
