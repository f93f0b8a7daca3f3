"""A limit on the cores of one host: a control group of its own, of either version."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_PATIENCE_SECONDS = 5.0


class CpuGroup:
    """A control group whose processes together get so many cores.

    Args:
        name: of a group that does not exist.
        cores: the limit, as container runtimes set it.

    Raises:
        OSError: where this machine has no such groups, or they are read-only.
    """

    def __init__(self, name: str, cores: float) -> None:
        version_1 = _ROOT / "cpu"
        quota = round(cores * _PERIOD_US)
        self._folder = (version_1 if version_1.is_dir() else _ROOT) / name
        if version_1.is_dir():
            self._folder.mkdir()
            (self._folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (_ROOT / "cgroup.subtree_control").write_text("+cpu")
            self._folder.mkdir()
            (self._folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}")

    def add(self, pids: Iterable[int]) -> None:
        """Move processes into the group; what they start is in it as well."""
        for pid in pids:
            (self._folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the group, once its processes have ended."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while self._folder.exists():
            with contextlib.suppress(OSError):
                self._folder.rmdir()
            if time.monotonic() > end:
                raise OSError(f"{self._folder} still has processes")
            time.sleep(0.02)
