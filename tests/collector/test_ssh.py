"""Logs on hosts reached over ssh, with the user's own configuration and keys only."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import processes
import pytest
from support.places import refusal
from support.services import Sshd, tool, use_sshd
from support.step_logs import Job, write_job

from stallscope.cli.main import main
from stallscope.collector.source_kinds import open_source
from stallscope.collector.sources import ssh
from stallscope.collector.sources.ssh import SshFiles
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.manifests import collected_runs
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.opening import open_run

pytestmark = pytest.mark.services

JOB = Job(ranks=2, steps=40, hosts=("alpha", "beta"))
REFUSED = "its host key is not in your known_hosts, or differs from it"


@pytest.fixture
def logs(tmp_path: Path, sshd: Sshd) -> Path:
    folder = tmp_path / "logs"
    write_job(folder, JOB)
    return folder


@pytest.mark.parametrize("host", ["ssh://alpha", "sftp://alpha"])
def test_a_run_on_a_host_equals_the_local_one(logs: Path, host: str) -> None:
    remote, local = open_run(f"{host}{logs}"), open_run(str(logs))
    assert remote.steps.equals(local.steps)
    assert remote.intervals.equals(local.intervals)
    assert remote.logs == local.logs
    assert remote.problems == local.problems


def test_user_and_port_may_be_in_the_url(logs: Path, sshd: Sshd) -> None:
    (sshd.home / ".ssh" / "config").write_text(f"IdentityFile {sshd.key}\n")
    files = open_source(f"ssh://{sshd.user}@127.0.0.1:{sshd.port}{logs}").files()
    assert [file.name for file in files] == sorted(path.name for path in logs.iterdir())


def test_files_have_names_sizes_and_versions(logs: Path) -> None:
    files = open_source(f"ssh://alpha{logs.parent}/logs").files()
    local = sorted(logs.iterdir())
    assert [file.name for file in files] == [path.name for path in local]
    assert [file.size for file in files] == [path.stat().st_size for path in local]
    assert [file.where for file in files] == [f"ssh://alpha{path}" for path in local]
    before = files[0].version
    os.utime(local[0], (1, 1))
    assert open_source(f"ssh://alpha{logs}").files()[0].version != before


def test_whole_files_and_parts_are_read(logs: Path) -> None:
    (file,) = open_source(f"ssh://alpha{logs}/rank-00001.*").files()
    data = (logs / file.name).read_bytes()
    assert file.read() == data
    assert file.read(100) == data[100:]
    assert file.read(100, 164) == data[100:164]
    assert file.read(0, 64) == data[:64]
    assert file.read(100, len(data) + 100) == data[100:]
    assert file.read(len(data) + 100) == b""


def test_more_than_one_answer_of_the_server_is_read_in_order(sshd: Sshd, tmp_path: Path) -> None:
    data = b"".join(b"%07d\n" % number for number in range(200_000))
    (tmp_path / "large.csv").write_bytes(data)
    (file,) = open_source(f"ssh://alpha{tmp_path}/large.csv").files()
    assert file.read() == data
    assert file.read(8, len(data) - 8) == data[8:-8]


def test_links_to_files_are_files_and_other_links_are_not(logs: Path) -> None:
    first = min(logs.iterdir())
    (logs / "link.csv").symlink_to(first.name)
    (logs / "nowhere.csv").symlink_to("nothing")
    (logs / "circle.csv").symlink_to("circle.csv")
    (logs / "again").symlink_to(".")
    files = {file.name: file for file in open_source(f"ssh://alpha{logs}").files()}
    assert set(files) == {"link.csv", *(path.name for path in logs.glob("r*"))}
    assert files["link.csv"].size == first.stat().st_size
    assert files["link.csv"].read() == first.read_bytes()
    by_pattern = open_source(f"ssh://alpha{logs}/*.csv").files()
    assert {file.name for file in by_pattern} == {n for n in files if n.endswith(".csv")}
    assert len(open_source(f"ssh://alpha{logs}/ag*n").files()) == len(files)


def test_all_hosts_of_a_hostfile_are_collected_into_one_run(
    sshd: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(tmp_path / "all", JOB)
    for rank, host in enumerate(("alpha", "beta")):
        place = tmp_path / "scratch" / host / "run"
        place.mkdir(parents=True)
        for path in (tmp_path / "all").glob(f"rank-0000{rank}*"):
            shutil.copy(path, place)
    (tmp_path / "hosts").write_text("alpha slots=1\nbeta slots=1\n")
    words = [f"{tmp_path}/scratch/{{host}}/run", "--hosts", str(tmp_path / "hosts")]
    assert main(["collect", *words, "--to", str(tmp_path / "store")]) == 0
    (place,) = collected_runs(tmp_path / "store")
    collected, whole = load_run(place), open_run(str(tmp_path / "all"))
    assert collected.ranks == [0, 1]
    assert collected.hosts == ["alpha", "beta"]
    assert collected.steps.equals(whole.steps)
    assert sorted(problem.what for problem in collected.problems) == sorted(
        problem.what for problem in whole.problems
    )


def test_a_missing_folder_is_named(logs: Path) -> None:
    url = f"ssh://alpha{logs}/nothing"
    assert refusal(url) == f"{url}: no such file or folder"
    assert refusal(f"{url}*").endswith("nothing matches")


def test_a_file_deleted_since_is_named(logs: Path) -> None:
    file, *_ = open_source(f"ssh://alpha{logs}").files()
    (logs / file.name).unlink()
    with pytest.raises(NotFoundError, match="the file was removed"):
        file.read()


def test_a_host_with_an_unknown_key_is_refused(logs: Path, sshd: Sshd) -> None:
    sshd.known_hosts.unlink()
    sentence = refusal(f"ssh://alpha{logs}")
    assert REFUSED in sentence
    assert "connect once with 'ssh alpha'" in sentence
    url = f"ssh://{sshd.user}@127.0.0.1:{sshd.port}{logs}"
    assert f"'ssh -p {sshd.port} {sshd.user}@127.0.0.1'" in refusal(url)


def test_a_host_with_a_changed_key_is_refused(logs: Path, sshd: Sshd, tmp_path: Path) -> None:
    key = tool("ssh").new_key(tmp_path / "other_host_key").with_suffix(".pub").read_text()
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {key}")
    assert REFUSED in refusal(f"ssh://alpha{logs}")


def test_no_setting_of_openssh_makes_an_unknown_key_a_known_one(logs: Path, sshd: Sshd) -> None:
    sshd.configure(
        f"IdentityFile {sshd.key}", "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"
    )
    assert REFUSED in refusal(f"ssh://alpha{logs}")


def test_known_hosts_of_the_configuration_count(logs: Path, sshd: Sshd, tmp_path: Path) -> None:
    moved = shutil.move(sshd.known_hosts, tmp_path / "known elsewhere")
    sshd.configure(f"IdentityFile {sshd.key}", f'UserKnownHostsFile "{moved}"')
    assert open_source(f"ssh://alpha{logs}").files()
    # As an administrator provides for all users.
    sshd.configure(
        f"IdentityFile {sshd.key}",
        "UserKnownHostsFile ~/.ssh/known_hosts",
        f'GlobalKnownHostsFile "{moved}"',
    )
    sshd.known_hosts.touch()
    assert open_source(f"ssh://alpha{logs}").files()


def test_a_rejected_key_is_an_error_of_one_sentence(logs: Path, sshd: Sshd, tmp_path: Path) -> None:
    sshd.configure(f"IdentityFile {tool('ssh').new_key(tmp_path / 'other_user_key')}")
    sentence = refusal(f"ssh://alpha{logs}")
    assert f"Permission denied for user {sshd.user}" in sentence
    assert "try 'ssh alpha'" in sentence


def test_a_key_with_a_passphrase_is_used_from_the_agent(
    logs: Path, sshd: Sshd, agent: None, tmp_path: Path
) -> None:
    locked = shutil.copy(sshd.key, tmp_path / "locked_key")
    words = ["ssh-keygen", "-q", "-p", "-N", "a passphrase", "-f", locked]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    shutil.copy(sshd.key.with_suffix(".pub"), f"{locked}.pub")
    sshd.configure(f"IdentityFile {locked}")
    assert "there is no prompt for passwords or passphrases" in refusal(f"ssh://alpha{logs}")
    subprocess.run(["ssh-add", "-q", sshd.key], check=True)
    assert open_source(f"ssh://alpha{logs}").files()


@pytest.fixture
def agent(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run an agent for the test, without keys."""
    door = tmp_path / "agent"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(door))
    command = ["ssh-agent", "-D", "-a", door]
    with tool("server").running(command, tmp_path / "ssh-agent", door.exists):
        yield


def test_a_password_in_the_url_is_in_no_message(logs: Path, sshd: Sshd) -> None:
    secret = "nobody-may-ever-see-this"
    with pytest.raises(UnreadableError) as raised:
        open_source(f"ssh://nobody:{secret}@127.0.0.1:{sshd.port}{logs}").files()
    assert secret not in str(raised.value)
    assert "Permission denied for user nobody" in str(raised.value)


def test_an_unknown_host_is_an_error_of_one_sentence(sshd: Sshd) -> None:
    assert "no such host" in refusal("ssh://no-such-host.invalid/logs")
    port = tool("server").free_port()
    assert "no ssh server answers there" in refusal(f"ssh://127.0.0.1:{port}/logs")


def test_a_silent_host_is_an_error_of_one_sentence(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SshFiles, "timeout_seconds", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "the host does not answer" in refusal(
            f"ssh://127.0.0.1:{silent.getsockname()[1]}/logs"
        )


def test_a_host_that_answers_may_take_its_time_to_log_in(
    logs: Path, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sshd.home / ".ssh" / "config").write_text(f"IdentityFile {sshd.key}\n")
    _, _, key = sshd.known_hosts.read_text().splitlines()[0].partition(" ")
    sshd.known_hosts.write_text(f"* {key}\n")
    time_is_up = threading.Event()

    async def until_its_version_came(host: Any, connecting: object) -> None:
        """Let the time for an answer be up as soon as the host's version came, however long."""
        while not host._has_answered():
            await asyncio.sleep(0.01)
        time_is_up.set()

    monkeypatch.setattr(ssh._hosts(), "_wait_for_answer", until_its_version_came)
    with hesitant(sshd.port, time_is_up) as port:
        place = open_source(f"ssh://{sshd.user}@127.0.0.1:{port}{logs}")
        assert len(place.files()) == JOB.ranks
    assert time_is_up.is_set()


@contextmanager
def hesitant(port: int, event: threading.Event) -> Iterator[int]:
    """Relay one connection to a port; the host's version comes at once, the rest after the event."""

    def copied(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)

    def relay() -> None:
        client, _ = listener.accept()
        with client, socket.create_connection(("127.0.0.1", port)) as host:
            threading.Thread(target=copied, args=(client, host), daemon=True).start()
            while (byte := host.recv(1)) != b"\n":
                client.sendall(byte)
            client.sendall(byte)
            event.wait()
            copied(host, client)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=relay, daemon=True).start()
        yield listener.getsockname()[1]


def test_a_host_that_stops_answering_is_given_up_and_retried(
    sshd_side: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_KEEPALIVE_SECONDS", 3)
    write_job(tmp_path / "logs", JOB)
    with tool("ssh").ssh_server(tmp_path / "ssh") as service:
        use_sshd(service, tmp_path / "home", monkeypatch)
        (file, _) = open_source(f"ssh://alpha{tmp_path}/logs").files()
        listener = int((tmp_path / "ssh" / "pid").read_text().split()[0])
        sessions = processes.with_children(listener)[1:]
        for session in sessions:
            os.kill(session, signal.SIGSTOP)
        with pytest.raises(UnreadableError, match="cannot be read: the connection was lost"):
            file.read()
        assert file.read() == (tmp_path / "logs" / file.name).read_bytes()
        for session in sessions:
            os.kill(session, signal.SIGCONT)


def test_a_bad_configuration_is_an_error_with_its_line(logs: Path, sshd: Sshd) -> None:
    sshd.configure("Port nonsense")
    assert ".ssh/config line 6" in refusal(f"ssh://alpha{logs}")


def test_a_missing_key_file_is_named(logs: Path, sshd: Sshd) -> None:
    sshd.configure("IdentityFile ~/.ssh/nothing")
    assert "nothing" in refusal(f"ssh://alpha{logs}")


def test_a_lost_connection_is_restored(
    sshd_side: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path / "logs", JOB)
    port = tool("server").free_port()
    with tool("ssh").ssh_server(tmp_path / "ssh", port) as service:
        use_sshd(service, tmp_path / "home", monkeypatch)
        place = open_source(f"ssh://alpha{tmp_path}/logs")
        files = place.files()
        data = files[0].read()
    with pytest.raises(UnreadableError, match="cannot be read: the connection was lost"):
        files[0].read()
    with pytest.raises(UnreadableError, match="cannot be opened: no ssh server answers there"):
        files[0].read()
    with pytest.raises(UnreadableError, match="cannot be opened: no ssh server answers there"):
        place.files()
    with tool("ssh").ssh_server(tmp_path / "ssh", port):
        assert files[0].read() == data
        assert [file.name for file in place.files()] == [file.name for file in files]
