"""Azure's Blob Storage (Azurite, Microsoft's own), which checks keys and signatures as that does."""

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
#: Made by npm, where that can reach its registry.
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
        """What Azure's clients are told of an account."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={self.account};AccountKey={self.key};"
            f"BlobEndpoint={self.endpoint}/{self.account};"
        )

    def settings(self) -> dict[str, str]:
        """The environment variable by which Azure's clients find it."""
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection_string}


@contextmanager
def azure_server(folder: Path, port: int | None = None) -> Iterator[Azure]:
    """An account as long as the block lasts; it is empty at the start, for all is in memory."""
    port = port or free_port()
    azure = Azure(f"http://127.0.0.1:{port}", base64.b64encode(os.urandom(48)).decode())
    command: list[str | Path] = [
        *(ENVIRONMENT / "bin" / "node", _AZURITE, "--inMemoryPersistence", "--disableTelemetry"),
        *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
        # Clients are newer than it is.
        "--skipApiVersionCheck",
    ]
    accounts = {"AZURITE_ACCOUNTS": f"{azure.account}:{azure.key}"}
    with running(command, folder, lambda: accepts(port), accounts):
        _make_container(azure)
        yield azure


def _make_container(azure: Azure) -> None:
    """The one request that the standard library has to sign."""
    path = f"/{azure.account}/{azure.container}"
    request = Request(f"{azure.endpoint}{path}?restype=container", method="PUT")
    headers = {"x-ms-date": formatdate(time.time(), usegmt=True), "x-ms-version": _API}
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    # The account is named twice: as whose request it is, and in the path as emulators have it.
    to_sign = "PUT" + "\n" * 12 + f"{named}/{azure.account}{path}\nrestype:container"
    signed = hmac.new(base64.b64decode(azure.key), to_sign.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(signed).decode()
    headers["Authorization"] = f"SharedKey {azure.account}:{signature}"
    for name, value in headers.items():
        request.add_header(name, value)
    with urlopen(request, timeout=60):
        pass
