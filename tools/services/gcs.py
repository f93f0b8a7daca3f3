"""A store that speaks as Google Cloud Storage does (gcp-storage-emulator); it asks nobody who he is."""

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
        """The environment variables by which clients of Google Cloud Storage find it."""
        return {
            "STORAGE_EMULATOR_HOST": self.endpoint,
            # Where there is no login, clients otherwise wait for that of a machine of Google's.
            "NO_GCE_CHECK": "true",
        }


@contextmanager
def gcs_server(folder: Path, port: int | None = None) -> Iterator[Gcs]:
    """A store as long as the block lasts; it is empty at the start, for all is in memory."""
    port = port or free_port()
    gcs = Gcs(f"http://127.0.0.1:{port}")
    command: list[str | Path] = [
        *(ENVIRONMENT / "bin" / "gcp-storage-emulator", "start", "--in-memory", "--quiet"),
        *("--host", "127.0.0.1", "--port", str(port), "--default-bucket", gcs.bucket),
    ]
    with running(command, folder, lambda: answers_http(gcs.endpoint)):
        yield gcs
