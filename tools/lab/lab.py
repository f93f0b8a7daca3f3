"""A lab: hosts on one isolated bridge that reach each other by name and ssh."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from services.ssh import find_sshd, new_key

from .host import Clock, Host, bucket
from .namespaces import Namespaces, run

_NETWORK = "10.77.0"
_PREFIX = 24
# Long enough for busy machines.
_START_SECONDS = 300.0


class Lab:
    """Hosts ``h1``, ``h2``, … on this machine. Needs root; leaves nothing behind.

    All hosts see this machine's files; at ``disk`` each has a private folder.

    Args:
        folder: an empty folder for the lab's files.
        hosts: their number.
        settings: variables of processes that ssh starts on any host, for example PATH.
        clocks: by host. By default the monotonic clocks differ by a day per host, like those of machines
            that were not started together, and the wall clocks do not differ.

    Raises:
        OSError: if a host does not start.
    """

    def __init__(
        self,
        folder: Path,
        hosts: int,
        settings: Mapping[str, str] | None = None,
        clocks: Mapping[str, Clock] | None = None,
    ) -> None:
        self.folder = folder
        self.disk = folder / "disk"
        #: A home folder for clients of ssh that do not read the system's configuration.
        self.home = folder / "home"
        self.hosts: list[Host] = []
        self._count = hosts
        self._settings = dict(settings or {})
        self._clocks = dict(clocks or {})
        self._hub: Namespaces | None = None

    def __enter__(self) -> Lab:
        with ExitStack() as on_failure:
            on_failure.callback(self.end)
            self._start()
            on_failure.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def __getitem__(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def _start(self) -> None:
        self.disk.mkdir(parents=True)
        names = {f"h{number}": f"{_NETWORK}.{number}" for number in range(1, self._count + 1)}
        lines = [f"{address} {name}" for name, address in names.items()]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        self._configure_ssh(list(names))
        # The hub is only a network; its bridge connects the hosts.
        bridge = ["ip link add br0 type bridge", "ip link set br0 up", "ip link set lo up"]
        self._hub = Namespaces(["--net"], [*bridge, "echo", "exec sleep infinity >/dev/null"])
        self._hub.go()
        self._hub.await_line()
        for number, name in enumerate(names):
            clock = self._clocks.get(name, Clock(up_s=number * 86_400))
            self.hosts.append(self._host(name, f"{names[name]}/{_PREFIX}", clock))
        self._wait_for(self.hosts)

    def _configure_ssh(self, names: Sequence[str]) -> None:
        """Configure ssh for all hosts, and in a home folder for clients that read only that."""
        folder = self.home / ".ssh"
        folder.mkdir(parents=True)
        key, known = new_key(self.folder / "user_key"), folder / "known_hosts"
        public = new_key(self.folder / "host_key").with_suffix(".pub").read_text()
        known.write_text("".join(f"{name} {public}" for name in names))
        config = f"Host *\n  IdentityFile {key}\n  UserKnownHostsFile {known}\n"
        (self.folder / "ssh_config").write_text(config)
        (folder / "config").write_text(config)

    def _host(self, name: str, address: str, clock: Clock) -> Host:
        assert self._hub is not None
        folder = self.folder / name
        host = Host(name, folder, self.disk, address, self.folder, self._settings, clock)
        pid = str(host.namespaces.pid)
        pair = ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid]
        run(self._hub.words(pair))
        run(self._hub.words(["ip", "link", "set", name, "master", "br0", "up"]))
        host.namespaces.go()
        return host

    def _wait_for(self, hosts: Sequence[Host]) -> None:
        end = time.monotonic() + _START_SECONDS
        for host in hosts:
            while not host.listens:
                if host.namespaces.ended or time.monotonic() > end:
                    raise OSError(f"{host.name} does not start: {host.messages}")
                time.sleep(0.02)

    def limit_link(self, name: str, mbit_s: float) -> None:
        """Limit the rate of the link between a host and the others, in both directions."""
        assert self._hub is not None
        self[name].limit_sending(mbit_s)
        run(self._hub.words(["tc", "qdisc", "replace", "dev", name, "root", *bucket(mbit_s)]))

    def lift_limit(self, name: str) -> None:
        """Remove the limit of a host's link."""
        assert self._hub is not None
        for words, device in ((self[name].words, "eth0"), (self._hub.words, name)):
            run(words(["tc", "qdisc", "del", "dev", device, "root"]))

    def ssh(self, name: str, words: Sequence[str]) -> list[str]:
        """Return the command line that logs in to a host from itself and runs a command there."""
        return self[name].words(["ssh", name, *words])

    def end(self) -> None:
        """End all hosts and their processes."""
        for host in self.hosts:
            host.end()
        self.hosts.clear()
        if self._hub is not None:
            self._hub.end()
            self._hub = None


def why_impossible() -> str | None:
    """Return why this machine cannot have a lab; None if it can."""
    if os.geteuid() != 0:
        return "several hosts on one machine need root"
    programs = ("unshare", "nsenter", "setpriv", "ip", "tc", "ssh", "ssh-keygen")
    missing = [name for name in programs if shutil.which(name) is None]
    missing += [] if find_sshd() else ["sshd"]
    if missing:
        return f"several hosts on one machine need {', '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--time", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"this machine forbids namespaces: {tried.stderr.strip()}" if tried.returncode else None
