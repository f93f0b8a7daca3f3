"""Object stores for tests: one interface for S3, Google's and Azure's, each with its own real server."""

from __future__ import annotations

import base64
import itertools
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from stallscope.collector.source_kinds import open_source

from .google import TOKEN, write_key_file
from .step_logs import Job, write_job

_NUMBERS = itertools.count()
#: In wrong credentials.
SECRET = "no-message-may-contain-this-secret"


@dataclass(frozen=True)
class Bucket:
    """A bucket that no other test uses."""

    store: Store
    name: str

    def url(self, path: str = "") -> str:
        return f"{self.store.scheme}://{self.name}/{path}"

    def put(self, folder: Path, path: str = "") -> None:
        """Copy a folder's files to below a path of the bucket."""
        client = self.store.client()
        for file in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
            client.pipe_file(f"{self.name}/{path}/{file.relative_to(folder)}", file.read_bytes())


def put_job(folder: Path, job: Job, bucket: Bucket) -> Path:
    """Write a job's logs into a local folder, and the same below ``logs/run-a`` of a bucket."""
    logs = folder / "logs" / "run-a"
    write_job(logs, job)
    bucket.put(logs, "logs/run-a")
    return logs


class Store(ABC):
    """A real server, and the settings with which this process and its children use it."""

    scheme: str
    #: Variables of the environment with these prefixes belong to its clients.
    prefixes: tuple[str, ...]
    #: Replaces the developer's own settings.
    nothing: ClassVar[dict[str, str]]

    def __init__(self, service: Any) -> None:
        self.service = service

    @property
    @abstractmethod
    def secret(self) -> str:
        """Return the secret that no message may contain."""

    @abstractmethod
    def client(self) -> Any:
        """Return a file system that writes there, with the current settings."""

    @abstractmethod
    def wrong(self, folder: Path) -> dict[str, str]:
        """Return settings with wrong credentials; ``folder`` for files that they need."""

    def use(self, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
        """Make the server the one that clients find, without the developer's settings."""
        for name in [name for name in os.environ if name.startswith(self.prefixes)]:
            monkeypatch.delenv(name)
        for name, value in {**self.nothing, **self.service.settings(), **settings}.items():
            monkeypatch.setenv(name, value)
        self.forget()

    def forget(self) -> None:
        """Clear what is cached per process with the first test's settings."""
        open_source(f"{self.scheme}://bucket")._kind().clear_instance_cache()  # type: ignore[attr-defined]

    def new_bucket(self) -> Bucket:
        name = f"stallscope-{next(_NUMBERS)}"
        self.client().mkdir(name)
        return Bucket(self, name)


class S3Store(Store):
    """S3, as moto implements it."""

    scheme = "s3"
    prefixes = ("AWS_",)
    nothing: ClassVar[dict[str, str]] = {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        # Clients without keys would otherwise request those of a cloud machine.
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    @property
    def secret(self) -> str:
        return str(self.service.secret)

    def client(self) -> Any:
        import s3fs

        return s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)

    def wrong(self, folder: Path) -> dict[str, str]:
        return {"AWS_SECRET_ACCESS_KEY": SECRET}


class GcsStore(Store):
    """Google Cloud Storage: its emulator, with a sign-in."""

    scheme = "gs"
    prefixes = ("GOOGLE_", "GCLOUD_", "CLOUDSDK_", "GCSFS_", "STORAGE_")
    nothing: ClassVar[dict[str, str]] = {"CLOUDSDK_CONFIG": os.devnull}

    @property
    def secret(self) -> str:
        return TOKEN

    def client(self) -> Any:
        from gcsfs.core import GCSFileSystem

        return GCSFileSystem(use_listings_cache=False, skip_instance_cache=True)

    def wrong(self, folder: Path) -> dict[str, str]:
        key_file = folder / "another-key.json"
        write_key_file(key_file, self.service.endpoint)
        return {"GOOGLE_APPLICATION_CREDENTIALS": str(key_file)}


class AzureStore(Store):
    """Azure's Blob Storage, as Azurite implements it."""

    scheme = "az"
    prefixes = ("AZURE_",)
    # A single, empty login: otherwise clients would search the whole machine for others.
    nothing: ClassVar[dict[str, str]] = {"AZURE_TOKEN_CREDENTIALS": "EnvironmentCredential"}

    @property
    def secret(self) -> str:
        return str(self.service.key)

    def client(self) -> Any:
        import adlfs

        return adlfs.AzureBlobFileSystem(use_listings_cache=False, skip_instance_cache=True)

    def wrong(self, folder: Path) -> dict[str, str]:
        key = base64.b64encode(SECRET.encode()).decode()
        text = self.service.connection_string.replace(self.service.key, key)
        return {"AZURE_STORAGE_CONNECTION_STRING": text}
