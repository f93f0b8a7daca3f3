"""Run an sshd with separate host and user keys, and configure its clients."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .server import ServerError, free_port, running

# sbin may be missing on PATH.
_PLACES = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Ssh:
    """An sshd that accepts one key."""

    port: int
    user: str
    #: A file with the server's key only.
    known_hosts: Path
    #: The accepted private key, without a passphrase.
    key: Path

    def config(self, hosts: Sequence[str], *settings: str) -> str:
        """Return an ssh configuration that maps these hosts to this server, with further settings."""
        lines = [
            f"Host {' '.join(hosts)}",
            "HostName 127.0.0.1",
            f"Port {self.port}",
            f"User {self.user}",
            "IdentitiesOnly yes",
            *settings,
        ]
        return "\n    ".join(lines) + "\n"


@contextmanager
def ssh_server(folder: Path, port: int | None = None) -> Iterator[Ssh]:
    """Run a server for the duration of the block; a folder that was used before keeps its keys."""
    program = find_sshd()
    if program is None:
        raise ServerError("there is no sshd: apt-get install openssh-server")
    if os.geteuid() == 0:
        # sshd needs it when it runs as root; the distribution's own service creates it, too.
        Path("/run/sshd").mkdir(exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    host_key, user_key = new_key(folder / "host_key"), new_key(folder / "user_key")
    shutil.copy(user_key.with_suffix(".pub"), folder / "authorized_keys")
    (folder / "known_hosts").write_text(
        f"[127.0.0.1]:{port} {host_key.with_suffix('.pub').read_text()}"
    )
    (folder / "sshd_config").write_text(_sshd_config(folder, port))
    # -e: into the log, not to syslog.
    command: list[str | Path] = [program, "-D", "-e", "-f", folder / "sshd_config"]
    with running(command, folder, lambda: _speaks_ssh(port)):
        yield Ssh(port, getpass.getuser(), folder / "known_hosts", user_key)


def find_sshd() -> str | None:
    """Return the path of the distribution's sshd, which must be called by its whole path."""
    return shutil.which("sshd", path=_PLACES)


def new_key(path: Path) -> Path:
    """Create a private key at this place, with the public one next to it; keep an existing one."""
    if not path.exists():
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path


def _sshd_config(folder: Path, port: int) -> str:
    return f"""\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
# Its folder may be in one that any user can write to.
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
LogLevel VERBOSE
"""


def _speaks_ssh(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
            return sock.recv(8) == b"SSH-2.0-"
    except OSError:
        return False
