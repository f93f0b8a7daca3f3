"""Collect the logs on the disks of a lab's hosts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab import Lab
from training.launching import PROGRAMS

from stallscope.opening import open_run
from stallscope.run import Run

APP = PROGRAMS.parents[1] / ".venv" / "bin" / "stallscope"


def hostfile(lab: Lab, out: Path) -> Path:
    """Write horovodrun's file of hosts, with one rank on each."""
    path = out / "hostfile"
    path.write_text("".join(f"{host.name} slots=1\n" for host in lab.hosts))
    return path


def collected(lab: Lab, out: Path) -> Run:
    """Collect the folder ``logs`` of each host over ssh, on the first host; it must be one run."""
    words = [str(APP), "collect", "--to", str(out / "store"), "--hosts", str(hostfile(lab, out))]
    done = subprocess.run(
        lab["h1"].words(["env", f"HOME={lab.home}", *words, str(lab.disk / "logs")]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return open_run(str(out / "store"))
