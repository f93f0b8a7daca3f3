"""Serve the dashboard over HTTP."""

from __future__ import annotations

import errno
import ipaddress
import logging
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

from waitress import wasyncore
from waitress.server import create_server

from stallscope.errors import UsageError

from .access import TOKEN_PARAMETER, checked_token, require_token
from .addresses import checked_prefix
from .app import create_app
from .callback_requests import refuse_malformed_requests
from .memory import share_heaps
from .security import require_host
from .store import RunStore

# Browsers send six requests at a time; two more threads stay free while slow analyses run.
_THREADS = 8
# Bytes; Plotly's script has 5 MB. Larger responses go through temporary files.
_MOST_BYTES_IN_MEMORY = 32 * 2**20
# Bytes; browsers and Dash send far fewer.
_MOST_BYTES_OF_HEADERS = 2**16
_MOST_BYTES_OF_A_BODY = 2**22
# More connections than these, of all or of one client, close the ones that have been idle for longest.
# Clients on this machine may be tunnels and proxies, which have many users: only the total limits them.
_MOST_CONNECTIONS = 200
_MOST_OF_A_CLIENT = 60
# New connections have so long to send their request, even above the limits.
_TIME_TO_SEND_S = 1.0
# A client that reads nothing of its response for so long is disconnected: on the way, networks and
# browsers may pause. It is not waited for if such responses take more bytes than these.
_UNREAD_S = 30.0
_MOST_UNREAD_BYTES = 2**28
_UNREAD_S_IF_MANY = 2.0
_CHECK_INTERVAL_S = 1.0
# Pipes are buffered: without a flush, the reader would wait for the line.
_print_flushed = partial(print, flush=True)


def serve(
    store: RunStore,
    host: str = "127.0.0.1",
    port: int = 8050,
    announce: Callable[[str], None] = _print_flushed,
    *,
    token: str | None = None,
    prefix: str = "/",
) -> None:
    """Serve the dashboard until Ctrl-C or SIGTERM; to be called from the main thread.

    Changes how the whole process allocates memory, so the process should do nothing else.

    Args:
        store: the runs to show.
        host: a name or address of this machine.
        port: 0 takes any free one.
        announce: called once with a line that contains the address, when the dashboard is ready.
        token: the secret that requests must contain; required if other machines can reach ``host``.
        prefix: the path below which a proxy serves the dashboard.

    Raises:
        UsageError: if host, port, token or prefix cannot be used, or if other machines can reach the
            host and there is no token.
    """
    share_heaps()
    server = DashboardServer(store, host, port, token=token, prefix=prefix)
    with _stopped_by_signals(server.stop), suppress(KeyboardInterrupt):
        announce(f"Dashboard at {server.url} (Ctrl-C stops it)")
        server.run()


class DashboardServer:
    """A dashboard that listens from its creation on and answers while ``run`` runs.

    Raises:
        UsageError: like ``serve``.
    """

    def __init__(
        self,
        store: RunStore,
        host: str,
        port: int,
        *,
        token: str | None = None,
        prefix: str = "/",
    ) -> None:
        prefix = checked_prefix(prefix)
        token = None if token is None else checked_token(token)
        listener = _listen(host, port, with_token=token is not None)
        port = listener.getsockname()[1]
        wildcard = ipaddress.ip_address(listener.getsockname()[0]).is_unspecified
        url_host = socket.gethostname() if wildcard else f"[{host}]" if ":" in host else host
        #: The dashboard's address, with the token if there is one.
        self.url = f"http://{url_host}:{port}{prefix}"
        app = create_app(store, prefix)
        if token is not None:
            # A website that points its own name here does not know the token: any host is safe.
            self.url += f"?{TOKEN_PARAMETER}={token}"
            require_token(app.server, token, port)
        else:
            require_host(
                app.server,
                url_host,
                port,
                f"This dashboard answers at {self.url} only. Through a tunnel, keep the port: "
                f"ssh -L {port}:127.0.0.1:{port} HOST; for other names, start it with --token",
            )
        refuse_malformed_requests(app, behind_proxy=prefix != "/")
        # Its warnings about queues and threads do not help users of a dashboard.
        logging.getLogger("waitress").setLevel(logging.ERROR)
        self._stopping = threading.Event()
        self._connections: dict[int, Any] = {}
        self._limits = _ConnectionLimits()
        self._server = create_server(
            app.server,
            map=self._connections,
            sockets=[listener],
            threads=_THREADS,
            outbuf_overflow=_MOST_BYTES_IN_MEMORY,
            max_request_header_size=_MOST_BYTES_OF_HEADERS,
            max_request_body_size=_MOST_BYTES_OF_A_BODY,
            # Above its limit, waitress accepts nobody until a connection has been idle for its time-out.
            connection_limit=2 * _MOST_CONNECTIONS,
            ident="",
        )

    def run(self) -> None:
        """Answer requests until ``stop`` is called; a KeyboardInterrupt passes through."""
        try:
            while not self._stopping.is_set():
                wasyncore.loop(timeout=1, use_poll=True, map=self._connections, count=1)
                self._limits.apply(list(self._server.active_channels.values()))
        finally:
            # Running requests need the connections that are closed below.
            self._server.task_dispatcher.shutdown(timeout=1)
            # An analysis that is still running can no longer report errors.
            logging.getLogger("waitress").setLevel(logging.CRITICAL)
            wasyncore.close_all(self._connections)

    def stop(self) -> None:
        """Let ``run`` return; can be called from any thread."""
        self._stopping.set()
        # The loop may notice by itself and close the trigger before it is pulled.
        with suppress(OSError):
            self._server.trigger.pull_trigger()


class _ConnectionLimits:
    """Closes connections that keep others out: idle ones, half-sent requests, unread responses."""

    def __init__(self) -> None:
        self._checked = float("-inf")
        # For connections with unsent bytes: their last activity, and since when it is the last.
        self._unread: dict[Any, tuple[float, float]] = {}

    def apply(self, channels: Sequence[Any]) -> None:
        """Close the connections of the server that exceed the limits, the longest idle first."""
        now = time.monotonic()
        if len(channels) <= _MOST_CONNECTIONS and now < self._checked + _CHECK_INTERVAL_S:
            return
        self._checked = now
        self._note_unread(channels, now)
        unread_bytes = sum(channel.total_outbufs_len for channel in self._unread)
        patience_s = _UNREAD_S_IF_MANY if unread_bytes > _MOST_UNREAD_BYTES else _UNREAD_S
        number, clients = len(channels), Counter(map(_client, channels))
        for channel in sorted(channels, key=lambda channel: float(channel.last_activity)):
            client = _client(channel)
            _, unread_since = self._unread.get(channel, (0.0, None))
            if unread_since == now:
                continue  # the response is new
            is_unread = unread_since is not None and now - unread_since > patience_s
            exceeds = number > _MOST_CONNECTIONS or clients[client] > _most_of(client)
            # Whole requests are answered first.
            if is_unread or (exceeds and not channel.requests and not _is_new(channel)):
                channel.handle_close()
                number -= 1
                clients[client] -= 1

    def _note_unread(self, channels: Sequence[Any], now: float) -> None:
        before, self._unread = self._unread, {}
        for channel in channels:
            if channel.total_outbufs_len:
                activity, since = before.get(channel, (None, now))
                has_read = activity != channel.last_activity
                self._unread[channel] = (channel.last_activity, now if has_read else since)


def _is_new(channel: Any) -> bool:
    # Clocks may be set back.
    return bool(abs(time.time() - channel.creation_time) < _TIME_TO_SEND_S)


def _client(channel: Any) -> str:
    return str(channel.addr[0])


def _most_of(client: str) -> int:
    # IPv6 sockets map the addresses of IPv4.
    is_this_machine = ipaddress.ip_address(
        client.removeprefix("::ffff:").partition("%")[0]
    ).is_loopback
    return _MOST_CONNECTIONS if is_this_machine else _MOST_OF_A_CLIENT


def _listen(host: str, port: int, *, with_token: bool) -> socket.socket:
    family, address = _resolve(host, port)
    if not (with_token or ipaddress.ip_address(address).is_loopback):
        raise UsageError(
            f"with --host {host}, anyone who reaches this machine could read the runs: add --token, or "
            "leave out --host and connect from other machines with ssh -L"
        )
    try:
        return socket.create_server((address, port), family=family)
    except OSError as error:
        raise UsageError(_reason(host, port, error)) from None


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    if not 0 <= port <= 65535:
        raise UsageError(f"there is no port {port}: choose one from 0 to 65535 with --port")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise UsageError(
            f"{host!r} is not a name or address of this machine: leave out --host"
        ) from None
    # localhost often has an IPv4 and an IPv6 address; every browser tries IPv4.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, str(address[0])


def _reason(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken: choose another one with --port (0 takes any free port)"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges: choose one above 1023 with --port"
    return f"cannot listen at {host}, port {port}: {error.strerror}"


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Stop the server on Ctrl-C, and on SIGTERM, which schedulers and containers send.

    The server stops between two iterations of its loop, because an exception anywhere could leave a
    new connection open. A second Ctrl-C does not wait.
    """
    signalled = threading.Event()

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if signalled.is_set():
            raise KeyboardInterrupt
        signalled.set()
        # In a thread: the interrupted code may hold the server's lock.
        threading.Thread(target=stop).start()

    handlers = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
