"""Slurm on the hosts of a lab: a controller on the first one, and a daemon on each."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from .lab import Lab

#: Debian's packages ``slurmctld``, ``slurmd`` and ``slurm-client``.
PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo")
# sbin may be missing on PATH.
_PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
# Long enough for busy machines.
_START_SECONDS = 300.0
# Root trusts root on these hosts, so no secret is needed.
_CONFIG = """\
ClusterName=lab
SlurmctldHost={first}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobRequeue=0
SlurmctldParameters=node_reg_mem_percent=1
NodeName={names} CPUs={cores}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """A cluster of a lab's hosts, each with all cores. Needs ``PROGRAMS``.

    Args:
        lab: running hosts.

    Raises:
        OSError: if it does not start.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._folder = lab.folder / "slurm"
        self._daemons = ExitStack()

    def __enter__(self) -> Slurm:
        self._folder.mkdir()
        hosts = self._lab.hosts
        with self._daemons as on_failure:
            # Sockets are in it, and the path of a socket has at most 107 bytes.
            spool = on_failure.enter_context(TemporaryDirectory(prefix="slurm-", dir="/tmp"))
            config = _CONFIG.format(
                first=hosts[0].name,
                folder=self._folder,
                spool=spool,
                names=",".join(host.name for host in hosts),
                cores=os.cpu_count(),
            )
            (self._folder / "slurm.conf").write_text(config)
            self._start(hosts[0].name, "slurmctld")
            for host in hosts:
                self._start(host.name, "slurmd")
            self._wait_until_idle()
            self._daemons = on_failure.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._daemons.close()

    def run(self, words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm on the first host, in a folder."""
        command = ["env", f"--chdir={folder}", f"SLURM_CONF={self._folder}/slurm.conf", *words]
        return subprocess.run(
            self._lab.hosts[0].words(command), capture_output=True, text=True, check=False
        )

    @property
    def messages(self) -> str:
        """Return the daemons' logs."""
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*.log")))

    def _start(self, host: str, program: str) -> None:
        path = shutil.which(program, path=_PLACES)
        if path is None:
            raise OSError(f"there is no {program}")
        settings = {**os.environ, "SLURM_CONF": f"{self._folder}/slurm.conf"}
        daemon = subprocess.Popen(
            self._lab[host].words([path, "-D"]),
            env=settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._daemons.callback(daemon.wait)
        self._daemons.callback(self._lab[host].kill, program.encode())

    def _wait_until_idle(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while True:
            states = self.run(["sinfo", "--noheader", "--Node", "--format=%T"], self._folder)
            if states.stdout.split() == ["idle"] * len(self._lab.hosts):
                return
            if time.monotonic() > end:
                raise OSError(f"Slurm does not start: {states.stderr}\n{self.messages}")
            time.sleep(0.05)


def why_no_slurm() -> str | None:
    """Return why this machine cannot run Slurm; None if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PLACES) is None]
    packages = "apt-get install slurmctld slurmd slurm-client"
    return f"there is no {missing[0]} to start jobs with: {packages}" if missing else None
