"""The server: where it listens, how it stops."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.step_logs import Job, write_job
from support.waiting import PATIENCE_SECONDS
from waitress.server import BaseWSGIServer
from waitress.task import ThreadedTaskDispatcher

from stallscope.dashboard import RunStore
from stallscope.dashboard.security import new_token
from stallscope.dashboard.server import DashboardServer, serve
from stallscope.errors import UsageError
from stallscope.run import Run

#: A script with more bytes than a socket's buffers take.
LARGE, LARGE_BYTES = "/_dash-component-suites/plotly/package_data/plotly.min.js", 4_000_000

_PROGRAM = """
import sys
from stallscope.dashboard import RunStore, serve
from stallscope.parsers import read
serve(RunStore(read(sys.argv[1])), port=0)
print("stopped", flush=True)
"""


@pytest.fixture
def runs(named_run: Callable[[str], Run]) -> RunStore:
    return RunStore([named_run("two ranks")])


def test_a_taken_port_is_named_with_the_way_out(runs: RunStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} is taken.*--port"):
            serve(runs, port=port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_refused(runs: RunStore, port: int) -> None:
    with pytest.raises(UsageError, match=rf"no port {port}: .*--port"):
        serve(runs, port=port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_other_machines_are_not_let_in_without_a_token(runs: RunStore, host: str) -> None:
    with pytest.raises(UsageError, match=r"anyone who reaches this machine.*add --token"):
        serve(runs, host=host, port=0)


def test_an_unknown_host_is_refused(runs: RunStore) -> None:
    with pytest.raises(UsageError, match=r"'no such host' is not a name or address"):
        serve(runs, host="no such host", port=0)


def test_with_a_token_other_machines_are_let_in(runs: RunStore) -> None:
    token = new_token()
    server = DashboardServer(runs, "0.0.0.0", 0, token=token)
    assert server.url.startswith(f"http://{socket.gethostname()}:")
    assert server.url.endswith(f"/?token={token}")
    port = _port(server.url)
    statuses = []
    # Any name that leads here will do: whoever knows the token may ask.
    _while_running(server, lambda: statuses.append(_get(port, "gpu-7.example")[0]))
    assert statuses == [401]


def test_health_checks_need_no_token_and_may_use_any_name(runs: RunStore) -> None:
    for host, token in (("127.0.0.1", None), ("0.0.0.0", new_token())):
        server = DashboardServer(runs, host, 0, token=token)
        port = _port(server.url)
        answers: list[tuple[int, str]] = []
        _while_running(
            server, lambda port=port, to=answers: to.append(_get(port, "10.0.0.7", "/health"))
        )
        assert answers == [(200, "ok\n")]


def test_it_answers_at_its_own_name_and_no_other(runs: RunStore) -> None:
    server = DashboardServer(runs, "localhost", 0)
    port = _port(server.url)
    statuses = {}

    def ask() -> None:
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", "evil.example"):
            statuses[host], body = _get(port, host)
        assert f"ssh -L {port}:127.0.0.1:{port}" in body

    _while_running(server, ask)
    assert list(statuses.values()) == [200, 200, 403]
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.any_versions
@pytest.mark.slow
def test_a_signal_stops_it_cleanly(tmp_path: Path) -> None:
    write_job(tmp_path, Job(steps=60))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = _port(line)
        assert _get(port, f"127.0.0.1:{port}")[0] == 200
        # Ctrl-C is tested by tests/cli/test_commands.py.
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert (out, err, process.returncode) == ("stopped\n", "", 0)


def test_stopped_while_it_answers_it_says_nothing_of_that(
    runs: RunStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = DashboardServer(runs, "127.0.0.1", 0)
    answering, ending = threading.Event(), threading.Event()
    workers: list[threading.Thread] = []
    tell, shutdown = BaseWSGIServer.pull_trigger, ThreadedTaskDispatcher.shutdown

    def late(self: BaseWSGIServer) -> None:
        # What a thread does when it has an answer for the loop to send.
        workers.append(threading.current_thread())
        answering.set()
        assert ending.wait(PATIENCE_SECONDS)
        tell(self)

    def end(self: ThreadedTaskDispatcher, **options: Any) -> bool:
        ending.set()
        return shutdown(self, **options)

    monkeypatch.setattr(BaseWSGIServer, "pull_trigger", late)
    monkeypatch.setattr(ThreadedTaskDispatcher, "shutdown", end)
    serving = threading.Thread(target=server.run)
    serving.start()
    with socket.create_connection(("127.0.0.1", _port(server.url))) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert answering.wait(PATIENCE_SECONDS)
        server.stop()
        serving.join(PATIENCE_SECONDS)
        assert not serving.is_alive()
        for worker in workers:
            worker.join(PATIENCE_SECONDS)
            assert not worker.is_alive()
    assert caplog.record_tuples == []


@pytest.mark.broad
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: 127"])
def test_idle_and_half_sent_connections_keep_nobody_out(runs: RunStore, sent: bytes) -> None:
    server = DashboardServer(runs, "127.0.0.1", 0)
    port = _port(server.url)

    def ask() -> None:
        with ExitStack() as stack:
            for _ in range(450):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                client.sendall(sent)
            assert _get(port, f"127.0.0.1:{port}")[0] == 200

    _while_running(server, ask)


def test_a_client_has_fewer_connections_than_all_clients_together(
    runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client closes its own connections, not those of others."""
    monkeypatch.setattr("stallscope.dashboard.server._MOST_OF_A_CLIENT", 20)
    server = DashboardServer(runs, "0.0.0.0", 0, token=new_token())
    port = _port(server.url)

    def ask() -> None:
        with ExitStack() as stack:
            here = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            here.settimeout(PATIENCE_SECONDS)
            clients = []
            for _ in range(30):
                client = socket.create_connection((_address_of_this_machine(), port))
                client.settimeout(PATIENCE_SECONDS)
                clients.append(stack.enter_context(client))
            # The first ones are closed, and the others answered.
            assert [client.recv(1) for client in clients[:10]] == [b""] * 10
            for client in (here, *clients[10:]):
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert client.recv(12) == b"HTTP/1.0 401"

    _while_running(server, ask)


def _asking_for_much(port: int, host: str) -> socket.socket:
    """Connect, and ask for more than the client's buffer takes."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(PATIENCE_SECONDS)
    client.connect(("127.0.0.1", port))
    client.sendall(f"GET {LARGE} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return client


@pytest.mark.broad
def test_clients_that_do_not_read_keep_nobody_out(
    runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallscope.dashboard.server._MOST_CONNECTIONS", 20)
    server = DashboardServer(runs, "127.0.0.1", 0)
    port = _port(server.url)

    def ask() -> None:
        host = f"127.0.0.1:{port}"
        _get(port, host)  # the page names the scripts that there are
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(_asking_for_much(port, host))
            assert _get(port, host)[0] == 200

    _while_running(server, ask)


@pytest.mark.broad
def test_who_reads_nothing_is_disconnected(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallscope.dashboard.server._UNREAD_S", 0.0)
    server = DashboardServer(runs, "127.0.0.1", 0)
    port = _port(server.url)

    def ask() -> None:
        host = f"127.0.0.1:{port}"
        _get(port, host)  # the page names the scripts that there are
        with _asking_for_much(port, host) as client:
            received = client.recv(1)
            while server._server.active_channels:
                time.sleep(0.01)
            with suppress(ConnectionResetError):
                while part := client.recv(2**20):
                    received += part
            assert len(received) < LARGE_BYTES

    _while_running(server, ask)


def _address_of_this_machine() -> str:
    """Return an address that is no loopback; connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def _get(port: int, host: str, path: str = "/") -> tuple[int, str]:
    with closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    ) as connection:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def _port(text: str) -> int:
    match = re.search(r"http://[^:]+:(\d+)/", text)
    assert match, text
    return int(match[1])


def _while_running(server: DashboardServer, do: Callable[[], None]) -> None:
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        do()
    finally:
        server.stop()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
