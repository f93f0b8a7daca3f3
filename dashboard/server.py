"""Serve the dashboard over HTTP, and check the requests of callbacks."""

from __future__ import annotations

import errno
import ipaddress
import json
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
from urllib.parse import urlsplit

from dash import Dash
from dash.exceptions import CallbackException, DependencyException
from flask import Response, request
from waitress import wasyncore
from waitress.server import create_server

from stallscope.errors import UsageError

from .addresses import checked_prefix
from .app import create_app
from .security import (
    TOKEN_PARAMETER,
    answer_health_checks,
    checked_token,
    require_host,
    require_token,
)
from .store import RunStore
from .store.cache import share_heaps

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

_log = logging.getLogger(__name__)
_ADDRESS = "/_dash-update-component"
# The kinds of values that properties of the dashboard's components have, apart from none.
_KINDS: dict[object, type | tuple[type, ...]] = {
    "pathname": str,
    "search": str,
    "runs-search.value": str,
    "value": (str, int, float),
    "getRowsRequest": dict,
    "selectedRows": list,
    "n_intervals": int,
    "horovod-timeline-run.data": str,
    "data": dict,
}
#: The values of requests by this page, or by the user.
_OWN_SITES = ("same-origin", "none")


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
        answer_health_checks(app.server)
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
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise UsageError(
            f"{host!r} is not a name or address of this machine: leave out --host"
        ) from None
    # localhost often has an IPv4 and an IPv6 address; every browser tries IPv4.
    family, _, _, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
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


# -- Refuse requests to Dash's callbacks that no page of the dashboard has sent -------------------


def refuse_malformed_requests(app: Dash, *, behind_proxy: bool) -> None:
    """Answer malformed requests to callbacks with 400, those of other sites with 403, and scripts that
    Dash does not have with 404.

    Dash would raise arbitrary errors. Each refusal is one line of the log. Call it after all callbacks
    are added.

    Args:
        behind_proxy: whether browsers may know the dashboard by another name.
    """

    def check() -> Response | None:
        if request.path != _ADDRESS:
            return None
        if _is_of_another_site(behind_proxy):
            return _refused("it comes from another site", 403)
        try:
            reason = _malformed(app, request.get_json(silent=True))
        except RecursionError:
            reason = "its body is nested too deeply"
        return _refused(reason, 400) if reason else None

    def refuse_script(_: DependencyException) -> Response:
        return _refused("there is no such script", 404)

    def refuse_outputs(_: CallbackException) -> Response:
        return _refused("its outputs are not those of the callback", 400)

    app.server.before_request(check)
    app.server.register_error_handler(DependencyException, refuse_script)
    app.server.register_error_handler(CallbackException, refuse_outputs)


def _is_of_another_site(behind_proxy: bool) -> bool:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in _OWN_SITES
    # Without TLS, browsers send that header only to this machine.
    origin = request.headers.get("Origin")
    return origin is not None and not behind_proxy and urlsplit(origin).netloc != request.host


def _malformed(app: Dash, body: object) -> str:
    """Return the error in the body of a request; empty if Dash can answer it."""
    if not isinstance(body, dict):
        return "its body is no JSON object"
    output = body.get("output")
    if not isinstance(output, str) or "callback" not in app.callback_map.get(output, {}):
        return "it names no callback"
    callback = app.callback_map[output]
    if not _are_outputs(body.get("outputs"), output):
        return "its outputs are not those of the callback"
    for name in ("inputs", "state"):
        values = body.get(name, [])
        if not isinstance(values, list) or not all(map(_is_property, values)):
            return f"its {name} are no properties of components"
        if not _are_those_of(callback[name], values):
            return f"its {name} are not those of the callback"
        if not all(map(_has_a_value_of_its_kind, values)):
            return f"its {name} have values of another kind"
    changed = body.get("changedPropIds", [])
    if not isinstance(changed, list) or not all(isinstance(name, str) for name in changed):
        return "its changedPropIds are no list of names"
    return ""


def _has_a_value_of_its_kind(entry: Any) -> bool:
    if isinstance(entry, list):
        return all(map(_has_a_value_of_its_kind, entry))
    value: Any = entry.get("value")
    name = entry["property"]
    if name == "id":
        return bool(value == entry["id"])
    kind = _KINDS.get(f"{entry['id']}.{name}") or _KINDS.get(name, object)
    if value is None or not isinstance(value, kind):
        return value is None
    return not isinstance(value, list) or all(map(_is_row, value))


def _is_row(row: object) -> bool:
    """Return whether a value may be a row of the table of runs."""
    return isinstance(row, dict) and isinstance(row.get("id"), str)


def _are_outputs(outputs: object, output: str) -> bool:
    """Compare outputs with a callback's name: ``id.property``, or ``..id.property...id.property..``."""
    several = output.startswith("..")
    names = output[2:-2].split("...") if several else [output]
    declared = [dict(zip(("id", "property"), name.rsplit(".", 1), strict=True)) for name in names]
    entries: Any = outputs if several else [outputs]
    return (
        isinstance(entries, list)
        and all(map(_is_property, entries))
        and _are_those_of(declared, entries)
    )


def _are_those_of(declared: list[Any], entries: list[Any]) -> bool:
    return len(declared) == len(entries) and all(map(_is_that_of, declared, entries))


def _is_that_of(declared: dict[str, str], entry: Any) -> bool:
    """Return whether an entry, or a list for a pattern, is the property that a callback declares."""
    component, name = declared["id"], declared["property"].partition("@")[0]
    if isinstance(entry, list):
        return component.startswith("{") and all(_is_that_of(declared, part) for part in entry)
    if entry["property"].partition("@")[0] != name:
        return False
    if not component.startswith("{"):
        return bool(entry["id"] == component)
    pattern = json.loads(component)
    # Lists stand for wildcards.
    if not isinstance(entry["id"], dict) or entry["id"].keys() != pattern.keys():
        return False
    return all(isinstance(part, list) or entry["id"][key] == part for key, part in pattern.items())


def _is_property(value: object) -> bool:
    if isinstance(value, list):  # of components that match a pattern
        return all(map(_is_property, value))
    return (
        isinstance(value, dict)
        and _is_id(value.get("id"))
        and isinstance(value.get("property"), str)
    )


def _is_id(component: object) -> bool:
    if isinstance(component, dict):
        return all(isinstance(part, (str, int)) for part in component.values())
    return isinstance(component, str)


def _refused(reason: str, status: int) -> Response:
    _log.warning("a request to %s is refused: %s", request.path, reason)
    return Response(f"{reason}\n", status=status, mimetype="text/plain")
