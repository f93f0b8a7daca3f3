"""One host of the lab, with a separate name, network, processes, clocks and disk, and an sshd."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from services.ssh import find_sshd

from .cgroups import Limits
from .namespaces import NAMESPACES, Namespaces, quoted, run

#: Debian's package ``faketime``.
FAKETIME = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu" / "faketime" / "libfaketimeMT.so.1"


@dataclass(frozen=True)
class Clock:
    """By how much a host's clocks differ from the first host's."""

    #: The monotonic clock, which counts from the start of a machine; whole seconds.
    up_s: int = 0
    #: The wall clock. A difference, like the drift, needs ``faketime`` and holds for processes of ssh.
    ahead_s: float = 0.0
    #: How much faster both clocks run: 1e-4 is 100 ppm.
    drift: float = 0.0

    @property
    def settings(self) -> dict[str, str]:
        """Return the variables that give a process this clock."""
        if not self.ahead_s and not self.drift:
            return {}
        return {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME": f"{self.ahead_s:+.6f} x{1 + self.drift:.6f}",
            "FAKETIME_NO_CACHE": "1",
        }


class Host:
    """A host: an sshd in separate namespaces, and the processes that it starts.

    When the sshd ends, the kernel ends all other processes of the host, like a power failure.

    Args:
        name: its host name.
        folder: for its files.
        disk: where the host has a folder that other hosts do not see.
        address: its IPv4 address with the length of the network's prefix.
        shared: files of all hosts: ``hosts``, ``ssh_config``, ``host_key``, ``user_key``.
        settings: the variables of processes that ssh starts here.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        disk: Path,
        address: str,
        shared: Path,
        settings: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self.name = name
        self.address = address.partition("/")[0]
        #: The host's own folder, as this machine sees it.
        self.disk = folder / "disk"
        self.disk.mkdir(parents=True)
        (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        self._config(folder / "sshd_config", shared, {**settings, **clock.settings})
        times = ["--time", "--monotonic", str(clock.up_s), "--boottime", str(clock.up_s)]
        script = [
            "ip link set lo up",
            f"ip addr add {address} dev eth0",
            "ip link set eth0 up",
            f"mount --bind {quoted(folder / 'boot_id')} /proc/sys/kernel/random/boot_id",
            f"mount --bind {quoted(shared / 'hosts')} /etc/hosts",
            f"mount --bind {quoted(shared / 'ssh_config')} /etc/ssh/ssh_config",
            f"mount --bind {quoted(self.disk)} {quoted(disk)}",
            # The user's start-up file would change the variables.
            "test ! -e ~/.bashrc || mount --bind /dev/null ~/.bashrc",
            "mkdir -p /run/sshd",
            f"hostname {quoted(name)}",
            # Its messages go to a file, because nothing reads its output.
            f"exec {find_sshd()} -D -f {quoted(folder / 'sshd_config')} "
            f"-E {quoted(folder / 'sshd.log')} >/dev/null",
        ]
        self._log = folder / "sshd.log"
        self._limits: Limits | None = None
        self.namespaces = Namespaces([*NAMESPACES, *times], script)

    def _config(self, path: Path, shared: Path, settings: Mapping[str, str]) -> None:
        variables = " ".join(f'"{name}={value}"' for name, value in settings.items())
        path.write_text(
            f"Port 22\nListenAddress {self.address}\nHostKey {shared / 'host_key'}\n"
            f"AuthorizedKeysFile {shared / 'user_key.pub'}\nStrictModes no\nUsePAM no\nPidFile none\n"
            # A launcher connects to all of its hosts at once.
            "MaxStartups 100\nMaxSessions 100\n"
            "Subsystem sftp internal-sftp\n" + (f"SetEnv {variables}\n" if variables else "")
        )

    @property
    def listens(self) -> bool:
        """Whether the sshd accepts connections."""
        return self._log.exists() and "Server listening" in self._log.read_text()

    @property
    def messages(self) -> str:
        """Return the sshd's log."""
        return self._log.read_text() if self._log.exists() else ""

    def words(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on this host."""
        return self.namespaces.words(words)

    def limit_sending(self, mbit_s: float) -> None:
        """Limit how fast the host sends."""
        run(self.words(["tc", "qdisc", "replace", "dev", "eth0", "root", *bucket(mbit_s)]))

    @property
    def limits(self) -> Limits:
        """Return the limits on all processes of the host."""
        if self._limits is None:
            self._limits = Limits(f"lab-{os.getpid()}-{self.name}")
            self._limits.add(here for _, here, _ in self.namespaces.processes())
        return self._limits

    def end(self) -> None:
        """End everything on the host."""
        self.namespaces.end()
        if self._limits is not None:
            self._limits.remove()
            self._limits = None

    def pids(self, pattern: bytes) -> dict[int, int]:
        """Return processes with a pattern in their command line: their ids on the host, and here."""
        return {
            inside: here for inside, here, words in self.namespaces.processes() if pattern in words
        }

    def kill(self, pattern: bytes, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to all processes with a pattern in their command line."""
        for pid in self.pids(pattern).values():
            # It may have ended by itself.
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def lose_power(self) -> None:
        """End everything on the host at once; its connections stay open at their other ends."""
        run(self.words(["ip", "link", "set", "eth0", "down"]))
        self.end()


def bucket(mbit_s: float) -> list[str]:
    """Return the arguments of ``tc`` that limit a rate; queues are short to keep latency low."""
    return ["tbf", "rate", f"{mbit_s * 1000:.0f}kbit", "burst", "64k", "latency", "400ms"]
