"""The lab's hosts differ as machines do, reach each other, and leave nothing behind."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from lab import Lab
from support.lab import LabStarter
from support.waiting import wait_until

pytestmark = pytest.mark.services

ENVIRONMENT = Path(sys.prefix)
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Sends a million bytes to the first host, and prints how long that took.
SENDER = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 5001)) as connection:
    began = time.monotonic()
    connection.sendall(bytes(1_000_000))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    print(time.monotonic() - began)
"""
RECEIVER = """
import socket
with socket.create_server(("", 5001)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    while connection.recv(65536):
        pass
    connection.sendall(b"x")
"""


def output_of(words: Sequence[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def lab(start_lab: LabStarter) -> Lab:
    return start_lab(3, [ENVIRONMENT / "bin"], GREETING="hello")


def test_hosts_have_their_own_names_machines_clocks_and_disks(lab: Lab) -> None:
    names = [host.name for host in lab.hosts]
    assert [output_of(lab.ssh(name, ["hostname"])) for name in names] == names
    assert len({output_of(lab.ssh(name, ["cat", BOOT_ID])) for name in names}) == len(names)
    up = [float(output_of(lab.ssh(name, ["cut -d' ' -f1 /proc/uptime"]))) for name in names]
    assert [round((later - up[0]) / 86_400) for later in up] == [0, 1, 2]
    for name in names:
        output_of(lab.ssh(name, [f"echo {name} > {lab.disk}/own"]))
    assert [(host.disk / "own").read_text().strip() for host in lab.hosts] == names


def test_hosts_reach_each_other_by_name(lab: Lab) -> None:
    assert output_of(lab.ssh("h1", ["ssh h3 'ssh h2 hostname'"])) == "h2"
    assert output_of(lab.ssh("h2", ["echo", "$GREETING"])) == "hello"


def seconds_from(lab: Lab, sender: str) -> float:
    python = str(ENVIRONMENT / "bin" / "python")
    receiver = subprocess.Popen(
        lab["h1"].words([python, "-c", RECEIVER]), stdout=subprocess.PIPE, text=True
    )
    with receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        return float(output_of(lab[sender].words([python, "-c", SENDER, "h1"])))


def test_a_link_is_no_faster_than_its_rate(lab: Lab) -> None:
    lab.limit_link("h3", 8)
    # A million bytes are 8 million bits; 64 KB of them pass at once.
    assert seconds_from(lab, "h3") > 0.9


def test_the_limit_of_a_link_is_lifted(lab: Lab) -> None:
    lab.limit_link("h3", 8)
    assert "tbf" in output_of(lab["h3"].words(["tc", "qdisc"]))
    lab.lift_limit("h3")
    assert "tbf" not in output_of(lab["h3"].words(["tc", "qdisc"]))


def test_a_host_gets_no_more_cores_than_its_limit(lab: Lab) -> None:
    lab["h2"].limits.limit_cores(0.5)
    busy = "import time; end = time.monotonic() + 2\nwhile time.monotonic() < end: pass\n"
    busy += "print(time.process_time())"
    words = [str(ENVIRONMENT / "bin" / "python"), "-c", shlex.quote(busy)]
    assert float(output_of(lab.ssh("h2", words))) < 1.5


def test_a_host_reads_no_faster_than_its_disk(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(8_000_000))
    lab["h2"].limits.limit_reading(4.0)
    # Without the cache of files.
    words = ["dd", f"if={file}", "of=/dev/null", "bs=1M", "iflag=direct"]
    begun = time.monotonic()
    output_of(["sync", str(file)])
    output_of(lab.ssh("h2", words))
    assert time.monotonic() - begun > 1.0


def test_processes_of_a_host_end_with_its_power(lab: Lab) -> None:
    words = lab.ssh("h1", ["ssh", "h2", "sleep", "600"])
    with subprocess.Popen(words) as sleeper:
        wait_until(lambda: bool(lab["h2"].pids(b"sleep")), "h2 sleeps")
        (here,) = lab["h2"].pids(b"sleep\0").values()
        lab["h2"].lose_power()
        wait_until(lambda: not Path(f"/proc/{here}").exists(), "its processes end")
        sleeper.kill()


def test_a_lab_leaves_nothing_behind(tmp_path: Path) -> None:
    with Lab(tmp_path / "lab", 2) as lab:
        lab["h1"].limits.limit_cores(1.0)
        pids = [here for host in lab.hosts for here in host.pids(b"").values()]
        assert len(pids) >= 2
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "all hosts end")
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert "br0" not in links
    assert not list(Path("/sys/fs/cgroup").glob("**/lab-*"))
