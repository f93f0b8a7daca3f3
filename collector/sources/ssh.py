"""Files on hosts that are reached over ssh, as the user's own ssh configuration says.

asyncssh reads ``~/.ssh/config``, ``~/.ssh/known_hosts``, keys and the agent, and asks nothing. The file
system over it verifies no host key unless it is told to, reads whole files where a part is asked for,
and does not connect again; that is mended here.
"""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import urlsplit

import fsspec

from stallscope.errors import StallscopeError, UnreadableError

from .base import SourceFile
from .files import Files

# For a host that does not answer at all; ConnectTimeout of the user's configuration may end it sooner.
_CONNECT_SECONDS = 60
# A connection on which three questions in a row were not answered is lost.
_ALIVE_SECONDS = 15
# What the pool of channels says of a connection that is lost.
_NO_CHANNEL = "Can't create any SFTP connections!"
_LOST = "the connection was lost"


class SshFiles(Files):
    """Files of one host, over one connection; after a failure the next attempt makes a new one."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.meanings = _meanings(_by_hand(self.where))
        self._lock = threading.Lock()
        self._connection: tuple[fsspec.AbstractFileSystem, str] | None = None

    def files(self) -> list[SourceFile]:
        try:
            return super().files()
        except UnreadableError:
            self._connection = None
            raise

    def _options(self) -> dict[str, Any]:
        return {
            # Empty is not none: those of the configuration, otherwise ~/.ssh/known_hosts.
            "known_hosts": (),
            "timeout": _CONNECT_SECONDS,
            "keepalive_interval": _ALIVE_SECONDS,
            # A connection that was lost would be handed out again.
            "skip_instance_cache": True,
        }

    def opened(self) -> tuple[fsspec.AbstractFileSystem, str]:
        with self._lock:
            if self._connection is None:
                self._connection = self._connected()
            return self._connection

    def _connected(self) -> tuple[fsspec.AbstractFileSystem, str]:
        try:
            return super().opened()
        except StallscopeError:
            raise
        except Exception as error:
            # Also where a file is missing: that is a key or a list of hosts, and none of the logs.
            raise UnreadableError(f"{self.where}: cannot be opened: {self._said(error)}") from error

    def _bytes(
        self, file_system: fsspec.AbstractFileSystem, path: str, start: int, end: int | None
    ) -> bytes:
        # The connection over which the file was listed may be lost by now.
        file_system, _ = self.opened()
        try:
            if end is None:
                end = max(start, int(file_system.info(path)["size"]))
            with file_system.open(path, "rb") as file:
                file.seek(start)
                return bytes(file.read(end - start))
        except FileNotFoundError:
            raise
        except Exception:
            self._connection = None
            raise

    def _said(self, error: BaseException) -> str:
        return _LOST if str(error) == _NO_CHANNEL else super()._said(error)


def _meanings(by_hand: str) -> dict[str, str]:
    locked = "{said}; add the key to the agent with ssh-add"
    return {
        "HostKeyNotVerifiable": (
            "its host key is not in your known_hosts, or is another one there; connect once with "
            f"'{by_hand}' and compare the key that it shows"
        ),
        "PermissionError": (
            f"{{said}}; try '{by_hand}': keys are those of ~/.ssh/config, ~/.ssh and the agent, and "
            "nobody is asked for a password or passphrase"
        ),
        "KeyImportError": locked,
        "KeyEncryptionError": locked,
        "gaierror": "no host of this name is in ~/.ssh/config or known to the network",
        "ConnectionRefusedError": "no ssh server answers there",
        "TimeoutError": "the host does not answer",
        **dict.fromkeys(
            ("ConnectionError", "ConnectionLost", "SFTPConnectionLost", "SFTPNoConnection"), _LOST
        ),
    }


def _by_hand(url: str) -> str:
    """The command that connects to a URL's host."""
    parts = urlsplit(url)
    if not parts.port:
        return f"ssh {parts.netloc}"
    return f"ssh -p {parts.port} {parts.netloc.removesuffix(f':{parts.port}')}"
