"""Servers for tests start, end with all their children, and report why they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import processes
import pytest
from support.services import tool
from support.waiting import PATIENCE_SECONDS

server = tool("server")

# Prints, starts a child in a separate session as sshd does, and ignores SIGTERM on request.
PROGRAM = """
import signal, subprocess, sys
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
open("child.part", "w").write(str(child.pid))
import os
os.rename("child.part", "child")
signal.pause()
"""


def test_a_server_ends_with_its_children(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with server.running([sys.executable, "-c", PROGRAM], folder, (folder / "child").exists) as pid:
        noted = (folder / "pid").read_text()
        child = processes.identity(int((folder / "child").read_text()))
        assert noted == processes.identity(pid)
        assert processes.runs(noted)
        assert processes.runs(child)
    assert not processes.runs(noted)
    assert not processes.runs(child)
    assert not (folder / "pid").exists()


def test_a_server_ends_when_the_block_fails(tmp_path: Path) -> None:
    noted = []

    def fail() -> None:
        running = server.running([sys.executable, "-c", PROGRAM], tmp_path / "one", lambda: True)
        with running as pid:
            noted.append(processes.identity(pid))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert noted
    assert not processes.runs(noted[0])


def test_a_server_that_ignores_the_signal_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_SECONDS_TO_END", 0.2)
    folder = tmp_path / "one"
    command = [sys.executable, "-c", PROGRAM, "deaf"]
    with server.running(command, folder, (folder / "child").exists) as pid:
        noted = processes.identity(pid)
    assert not processes.runs(noted)


def test_a_server_that_ends_fails_with_the_last_lines_of_its_log(tmp_path: Path) -> None:
    program = "import sys; print(*range(40), sep='\\n', flush=True); sys.exit('the disk is gone')"
    running = server.running([sys.executable, "-c", program], tmp_path / "one", lambda: False)
    with pytest.raises(server.ServerError) as raised, running:
        pass
    first, *lines = str(raised.value).splitlines()
    assert first == "the server one ended with status 1; it last printed:"
    assert len(lines) == 15
    assert "    39" in lines
    assert "    the disk is gone" in lines


def test_a_server_that_does_not_answer_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PATIENCE_SECONDS", 0.2)
    running = server.running([sys.executable, "-c", PROGRAM], tmp_path / "one", lambda: False)
    with pytest.raises(server.ServerError, match="one did not answer within"), running:
        pass
    assert not (tmp_path / "one" / "pid").exists()


def test_another_process_with_the_same_id_is_left_alone() -> None:
    assert processes.runs(processes.identity(os.getpid()))
    assert not processes.runs(f"{os.getpid()} 1")
    assert not processes.runs("")
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        assert processes.identity(process.pid) is None


Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[Command]:
    """Run the command of ``make services``, with files in a folder of the test's."""
    started: list[subprocess.Popen[str]] = []
    settings = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2] / "tools"),
        "STALLSCOPE_SERVICES": str(tmp_path / "services"),
    }

    def run(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "services", *words]
        started.append(subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield run
    run("stop").wait(PATIENCE_SECONDS)
    for process in started:
        process.communicate(timeout=PATIENCE_SECONDS)


def output_of(keeper: subprocess.Popen[str]) -> str:
    """Return its output until all servers answer."""
    assert keeper.stdout is not None
    lines = []
    for line in keeper.stdout:
        lines.append(line)
        if line.startswith("Logs are in"):
            break
    return "".join(lines)


@pytest.mark.services
def test_make_services_keeps_servers_until_they_are_stopped(
    sshd_side: None, tmp_path: Path, by_hand: Command
) -> None:
    keeper = by_hand("start", "ssh")
    printed = output_of(keeper)
    state = tmp_path / "services"
    noted = (state / "ssh" / "pid").read_text()
    assert f"Include {state}/ssh/config" in printed
    assert processes.runs(noted)
    assert by_hand("start", "ssh").wait(PATIENCE_SECONDS) == 1
    assert by_hand("stop").wait(PATIENCE_SECONDS) == 0
    assert keeper.wait(PATIENCE_SECONDS) == 0
    assert not processes.runs(noted)


@pytest.mark.services
def test_make_services_prints_the_settings_of_stores(
    azurite_side: None, tmp_path: Path, by_hand: Command
) -> None:
    keeper = by_hand("start", "gcs", "azure")
    printed = output_of(keeper)
    assert "export STORAGE_EMULATOR_HOST=http://127.0.0.1:" in printed
    assert "export AZURE_STORAGE_CONNECTION_STRING='DefaultEndpointsProtocol=http;" in printed
    noted = [(tmp_path / "services" / name / "pid").read_text() for name in ("gcs", "azure")]
    assert all(processes.runs(pid) for pid in noted)
    assert by_hand("stop").wait(PATIENCE_SECONDS) == 0
    assert keeper.wait(PATIENCE_SECONDS) == 0
    assert not any(processes.runs(pid) for pid in noted)


@pytest.mark.services
def test_servers_whose_keeper_was_killed_are_stopped_by_their_ids(
    sshd_side: None, tmp_path: Path, by_hand: Command
) -> None:
    keeper = by_hand("start", "ssh")
    output_of(keeper)
    noted = (tmp_path / "services" / "ssh" / "pid").read_text()
    keeper.kill()
    keeper.wait(PATIENCE_SECONDS)
    assert processes.runs(noted)
    assert by_hand("stop").wait(PATIENCE_SECONDS) == 0
    assert not processes.runs(noted)
