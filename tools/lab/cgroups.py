"""Limit the resources of one host by control groups of version 1 or 2."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("cpu", "memory", "blkio")
_PERIOD_US = 100_000
# Long enough for busy machines.
_PATIENCE_SECONDS = 300.0


class Limits:
    """Control groups that limit their processes' resources, as container runtimes do.

    With version 1 there is one group per controller; an additional one of version 2 shows the pressure.

    Args:
        name: a name that no group has.

    Raises:
        OSError: if this machine has no control groups, or they are read-only.
    """

    def __init__(self, name: str) -> None:
        self._version_1 = (_ROOT / "cpu").is_dir()
        parts = [*_CONTROLLERS, "unified"] if self._version_1 else ["."]
        self._folders = {part: _ROOT / part / name for part in parts}
        if not self._version_1:
            (_ROOT / "cgroup.subtree_control").write_text("+cpu +memory +io")
        for folder in self._folders.values():
            folder.mkdir()

    def limit_cores(self, cores: float) -> None:
        """Limit the processes to so many cores."""
        quota = round(cores * _PERIOD_US)
        if self._version_1:
            (self._folders["cpu"] / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self._folders["cpu"] / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self._folders["."] / "cpu.max").write_text(f"{quota} {_PERIOD_US}")

    def limit_memory(self, megabytes: float) -> None:
        """Limit the processes to so much memory, including cached pages of files that they read."""
        size = str(round(megabytes * 2**20))
        if self._version_1:
            (self._folders["memory"] / "memory.limit_in_bytes").write_text(size)
        else:
            (self._folders["."] / "memory.high").write_text(size)

    def limit_reading(self, megabytes_s: float) -> None:
        """Limit how much the processes read per second from this machine's root disk."""
        device = Path("/").stat().st_dev
        name = f"{os.major(device)}:{os.minor(device)}"
        rate = round(megabytes_s * 1e6)
        if self._version_1:
            (self._folders["blkio"] / "blkio.throttle.read_bps_device").write_text(f"{name} {rate}")
        else:
            (self._folders["."] / "io.max").write_text(f"{name} rbps={rate}")

    def add(self, pids: Iterable[int]) -> None:
        """Move processes into the groups; their later children belong to them, too."""
        for pid in pids:
            for folder in self._folders.values():
                (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the groups, once their processes have ended."""
        end = time.monotonic() + _PATIENCE_SECONDS
        for folder in self._folders.values():
            while folder.exists():
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if time.monotonic() > end:
                    raise OSError(f"{folder} still has processes")
                time.sleep(0.02)
