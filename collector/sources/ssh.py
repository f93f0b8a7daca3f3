"""Read files over ssh, with the user's ssh configuration.

asyncssh reads ``~/.ssh/config``, ``~/.ssh/known_hosts``, keys and the agent, and never prompts. Its file
system does not verify host keys by default, reads whole files instead of parts, and does not reconnect;
this module fixes that.
"""

from __future__ import annotations

import asyncio
import threading
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import fsspec

from stallscope.errors import StallscopeError, UnreadableError

from .files import Files
from .source import SourceFile

# The timeout for logging in to a host that answers, as an agent may ask for a key to be touched.
# ConnectTimeout of the user's configuration may be shorter.
_LOGIN_SECONDS = 60
# After three unanswered keepalive messages the connection is lost. Any data postpones them.
_KEEPALIVE_SECONDS = 5
# The error of the channel pool for a lost connection.
_NO_CHANNEL = "Can't create any SFTP connections!"
_LOST = "the connection was lost"


class SshFiles(Files):
    """Files of a host, over one connection; after a failure, the next attempt reconnects."""

    unanswered = "the host does not answer"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.error_messages = _error_messages(_ssh_command(self.where))
        self._lock = threading.Lock()
        self._connection: tuple[fsspec.AbstractFileSystem, str] | None = None

    def files(self) -> list[SourceFile]:
        try:
            return super().files()
        except UnreadableError:
            self._connection = None
            raise

    def _first_request(self) -> None:
        self.open_file_system()

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _hosts()

    def _options(self) -> dict[str, Any]:
        return {
            "silent_seconds": self.timeout_seconds,
            # () means those of the configuration, or ~/.ssh/known_hosts; None would verify nothing.
            "known_hosts": (),
            "timeout": _LOGIN_SECONDS,
            "keepalive_interval": _KEEPALIVE_SECONDS,
            # The instance cache would return a lost connection.
            "skip_instance_cache": True,
        }

    def open_file_system(self) -> tuple[fsspec.AbstractFileSystem, str]:
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> tuple[fsspec.AbstractFileSystem, str]:
        try:
            return super().open_file_system()
        except StallscopeError:
            raise
        except Exception as error:
            # A missing file here is a key or known_hosts file, not a log.
            raise UnreadableError(
                f"{self.where}: cannot be opened: {self.describe_error(error)}"
            ) from error

    def _bytes(
        self, file_system: fsspec.AbstractFileSystem, path: str, start: int, end: int | None
    ) -> bytes:
        # The connection that listed the file may be lost.
        file_system, _ = self.open_file_system()
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

    def describe_error(self, error: BaseException) -> str:
        return _LOST if str(error) == _NO_CHANNEL else super().describe_error(error)


def _error_messages(ssh_command: str) -> dict[str, str]:
    locked = "{error}; add the key to the agent with ssh-add"
    return {
        "HostKeyNotVerifiable": (
            "its host key is not in your known_hosts, or differs from it; connect once with "
            f"'{ssh_command}' and compare the key that it shows"
        ),
        "PermissionError": (
            f"{{error}}; try '{ssh_command}': keys come from ~/.ssh/config, ~/.ssh and the agent, and "
            "there is no prompt for passwords or passphrases"
        ),
        "KeyImportError": locked,
        "KeyEncryptionError": locked,
        "gaierror": "no such host in ~/.ssh/config or on the network",
        "ConnectionRefusedError": "no ssh server answers there",
        "TimeoutError": SshFiles.unanswered,
        **dict.fromkeys(
            ("ConnectionError", "ConnectionLost", "SFTPConnectionLost", "SFTPNoConnection"), _LOST
        ),
    }


def _ssh_command(url: str) -> str:
    """Return the command that connects to a URL's host."""
    parts = urlsplit(url)
    if not parts.port:
        return f"ssh {parts.netloc}"
    return f"ssh -p {parts.port} {parts.netloc.removesuffix(f':{parts.port}')}"


@cache
def _hosts() -> type[fsspec.AbstractFileSystem]:
    from asyncssh import SSHClient, SSHClientConnection
    from fsspec.asyn import sync_wrapper
    from sshfs import SSHFileSystem

    class Client(SSHClient):
        """Adds its connection to a list."""

        def __init__(self, connections: list[SSHClientConnection]) -> None:
            self._connections = connections

        def connection_made(self, conn: SSHClientConnection) -> None:
            self._connections.append(conn)

    class Hosts(SSHFileSystem):  # type: ignore[misc]  # sshfs ships no types
        """A host that is given up early if nothing answers there; logging in may take longer."""

        def __init__(self, host: str, *, silent_seconds: float, **options: Any) -> None:
            self._silent_seconds = silent_seconds
            self._connections: list[SSHClientConnection] = []
            super().__init__(host, client_factory=self._client_of_host, **options)

        def _client_of_host(self) -> Client:
            return Client(self._connections)

        async def _connect(self, *args: Any, **options: Any) -> Any:
            connecting = asyncio.ensure_future(super()._connect(*args, **options))
            try:
                await self._wait_for_answer(connecting)
                if not connecting.done() and not self._has_answered():
                    raise asyncio.TimeoutError
                return await connecting
            finally:
                connecting.cancel()

        async def _wait_for_answer(self, connecting: asyncio.Future[Any]) -> None:
            await asyncio.wait({connecting}, timeout=self._silent_seconds)

        def _has_answered(self) -> bool:
            """Whether the host has sent its version, which is the first that it sends."""
            return any(
                connection.get_extra_info("server_version") for connection in self._connections
            )

        connect = sync_wrapper(_connect)

    return Hosts
