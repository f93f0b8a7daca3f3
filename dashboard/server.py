"""Serves the dashboard to this machine's browser."""

from __future__ import annotations

import errno
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

from waitress import wasyncore
from waitress.server import create_server

from stallscope.errors import UsageError

from .access import IN_ADDRESS, ask_for_token, checked_token
from .app import create_app
from .behind_proxy import checked_prefix
from .memory import share_heaps
from .security import OwnHosts, answer_only
from .store import RunStore

# Browsers ask for six things at a time; slow first analyses leave room for what is quick.
_THREADS = 8
# Bytes; Plotly's script has 5 MB. What is larger goes through temporary files.
_LARGEST_ANSWER = 32 * 2**20


def _print_at_once(line: str) -> None:
    # Into a pipe, print alone would wait for more.
    print(line, flush=True)


def serve(
    store: RunStore,
    host: str = "127.0.0.1",
    port: int = 8050,
    announce: Callable[[str], None] = _print_at_once,
    *,
    token: str | None = None,
    prefix: str = "/",
) -> None:
    """Serve the dashboard until Ctrl-C or SIGTERM; to be called from the main thread.

    The process is the dashboard's from then on: where its threads and Arrow take memory from is set.

    Args:
        store: the runs to show.
        host: a name or address of this machine.
        port: 0 takes any free one.
        announce: is called once, with a line that holds the address, when the dashboard answers.
        token: the secret of every request; required if other machines reach ``host``.
        prefix: the path below which a proxy serves it.

    Raises:
        UsageError: if other machines reach the host and there is no token, if host or port cannot be
            had, or token or prefix cannot be used.
    """
    share_heaps()
    server = DashboardServer(store, host, port, token=token, prefix=prefix)
    with _stopped_by_signals(server.stop), suppress(KeyboardInterrupt):
        announce(f"Dashboard at {server.url} (Ctrl-C stops it)")
        server.run()


class DashboardServer:
    """A dashboard that listens from the start and answers while ``run`` runs.

    Raises:
        UsageError: as ``serve`` does.
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
        listener = _listen(_resolve(host, port), open_to_others=token is not None)
        port = listener.getsockname()[1]
        wildcard = ipaddress.ip_address(listener.getsockname()[0]).is_unspecified
        shown = socket.gethostname() if wildcard else f"[{host}]" if ":" in host else host
        #: Where it answers, with the token if there is one.
        self.url = f"http://{shown}:{port}{prefix}"
        app = create_app(store, prefix)
        if token is not None:
            # A page that lets its own name point here does not know it: any name will do.
            self.url += f"?{IN_ADDRESS}={token}"
            ask_for_token(app.server, token, port)
        else:
            answer_only(
                app.server,
                OwnHosts(shown, port),
                f"This dashboard answers at {self.url} only. Through a tunnel, keep the port: "
                f"ssh -L {port}:127.0.0.1:{port} HOST; for other names, start it with --token",
            )
        # Its warnings about queues and threads are for those who run servers.
        logging.getLogger("waitress").setLevel(logging.ERROR)
        self._stopping = threading.Event()
        self._connections: dict[int, Any] = {}
        self._server = create_server(
            app.server,
            map=self._connections,
            sockets=[listener],
            threads=_THREADS,
            outbuf_overflow=_LARGEST_ANSWER,
            ident="",
        )

    def run(self) -> None:
        """Answer requests until ``stop``; a KeyboardInterrupt comes through."""
        try:
            while not self._stopping.is_set():
                wasyncore.loop(timeout=1, map=self._connections, count=1)
        finally:
            # What is being answered needs what is closed here.
            self._server.task_dispatcher.shutdown(timeout=1)
            # An analysis that is still running cannot report any more.
            logging.getLogger("waitress").setLevel(logging.CRITICAL)
            wasyncore.close_all(self._connections)

    def stop(self) -> None:
        """Let ``run`` return; from any thread."""
        self._stopping.set()
        # The loop may see that by itself, and close the trigger, before that is pulled.
        with suppress(OSError):
            self._server.trigger.pull_trigger()


class _Place(NamedTuple):
    """Return where to listen: as the user named it, and as the machine knows it."""

    host: str
    port: int
    family: socket.AddressFamily
    address: str


def _resolve(host: str, port: int) -> _Place:
    if not 0 <= port <= 65535:
        raise UsageError(f"there is no port {port}: choose one from 0 to 65535 with --port")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise UsageError(
            f"{host!r} is no name or address of this machine: leave out --host"
        ) from None
    # localhost is often both; browsers try IPv4 in any case.
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return _Place(host, port, family, str(address[0]))


def _listen(place: _Place, *, open_to_others: bool) -> socket.socket:
    if not (open_to_others or ipaddress.ip_address(place.address).is_loopback):
        raise UsageError(
            f"at {place.host} everybody who reaches this machine could look at the runs: add --token, "
            "or leave out --host and come through ssh -L from elsewhere"
        )
    try:
        return socket.create_server((place.address, place.port), family=place.family)
    except OSError as error:
        raise UsageError(_why_not(place, error)) from None


def _why_not(place: _Place, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {place.port} is taken: choose another one with --port (0 takes any that is free)"
        )
    if error.errno == errno.EACCES:
        return f"port {place.port} needs privileges: choose one above 1023 with --port"
    return f"cannot listen at {place.host}, port {place.port}: {error.strerror}"


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C, and SIGTERM, which schedulers and containers send, stop the server.

    An exception out of the blue could leave a connection that was just accepted open: the server is
    asked to stop between two of its turns. A second Ctrl-C does not wait.
    """
    signalled = threading.Event()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        if signalled.is_set():
            raise KeyboardInterrupt
        signalled.set()
        # From a thread: the server's lock may be held by the very code that the signal interrupts.
        threading.Thread(target=stop).start()

    before = {one: signal.signal(one, ask) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
