"""Run Azure's Blob Storage (Microsoft's Azurite), which checks keys and signatures like the real one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.request import Request, urlopen

from .server import ENVIRONMENT, accepts, free_port, running

CONTAINER = ACCOUNT = "stallscope"
_AZURITE = ENVIRONMENT / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
#: Installed if npm's registry can be reached.
READY = _AZURITE
_API = "2021-08-06"


@dataclass(frozen=True)
class Azure:
    """A storage account with one empty container."""

    endpoint: str
    key: str
    account: str = ACCOUNT
    container: str = CONTAINER

    @property
    def connection_string(self) -> str:
        """Return the account's connection string for Azure's clients."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={self.account};AccountKey={self.key};"
            f"BlobEndpoint={self.endpoint}/{self.account};"
        )

    def settings(self) -> dict[str, str]:
        """Return the environment variable by which Azure's clients find it."""
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection_string}


@contextmanager
def azure_server(folder: Path, port: int | None = None) -> Iterator[Azure]:
    """Run an account for the duration of the block; it starts empty, as all is in memory."""
    port = port or free_port()
    azure = Azure(f"http://127.0.0.1:{port}", base64.b64encode(os.urandom(48)).decode())
    command: list[str | Path] = [
        *(ENVIRONMENT / "bin" / "node", _AZURITE, "--inMemoryPersistence", "--disableTelemetry"),
        *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
        # Clients are newer than Azurite.
        "--skipApiVersionCheck",
    ]
    accounts = {"AZURITE_ACCOUNTS": f"{azure.account}:{azure.key}"}
    with running(command, folder, lambda: accepts(port), accounts):
        _make_container(azure)
        yield azure


def _make_container(azure: Azure) -> None:
    """Create the container with a signed request."""
    path = f"/{azure.account}/{azure.container}"
    request = Request(f"{azure.endpoint}{path}?restype=container", method="PUT")
    headers = {"x-ms-date": formatdate(time.time(), usegmt=True), "x-ms-version": _API}
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    # The account occurs twice: as the request's owner, and in the path, as in emulators.
    to_sign = "PUT" + "\n" * 12 + f"{named}/{azure.account}{path}\nrestype:container"
    signed = hmac.new(base64.b64decode(azure.key), to_sign.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(signed).decode()
    headers["Authorization"] = f"SharedKey {azure.account}:{signature}"
    for name, value in headers.items():
        request.add_header(name, value)
    with urlopen(request, timeout=60):
        pass
