"""Where large arrays lie: in memory, or in files that are mapped into it where they would not fit.

A run's analysis holds some 200 bytes per row. Where that is more than memory has to give, arrays with a
number per row are files in ``TMPDIR`` (``/var/tmp`` unless it is set), some 100 to 180 bytes per row,
of which the system keeps in memory what it has room for. They have no names: they are gone when no
process holds them any longer, however that comes. ``STALLSCOPE_MEMORY`` says how much there is to
give, as ``3GB`` or ``800MB``; unless it does, that is half of what is available.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.errors import UnwritableError, UsageError

#: Makes an array of so many steps × ranks that lies rank by rank, of zeros.
Room = Callable[[tuple[int, int], npt.DTypeLike], npt.NDArray[Any]]

MEMORY = "STALLSCOPE_MEMORY"
#: What an analysis in memory holds of a row at once: its columns, what is made of them, and what that
#: takes on the way.
BYTES_PER_ROW = 200
_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
# So much is there wherever this runs, by default.
_ALWAYS_THERE = 64 * 10**6
# Fallback when the limit is unknown.
_USUAL_MEMORY = 8 * 10**9
_NO_LIMIT = 2**63
# Within a container, as either version of Linux' control groups shows it its own limit and use.
_GROUPS = Path("/sys/fs/cgroup")
_OF_CONTAINERS = (
    (_GROUPS / "memory.max", _GROUPS / "memory.current"),
    (_GROUPS / "memory/memory.limit_in_bytes", _GROUPS / "memory/memory.usage_in_bytes"),
)


def in_memory(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The usual room."""
    # What is never written to stays the system's one page of zeros.
    return np.zeros(shape[::-1], dtype).T


def on_disk(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Room for what does not fit into memory.

    Raises:
        UnwritableError: if there is no room on the disk, either.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return in_memory(shape, dtype)
    folder = folder_for_files()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            _reserve(file.fileno(), size)
            held = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise UnwritableError(
            f"{folder}: no room for {size / 1e9:.3g} GB of a run that does not fit into memory "
            f"({error.strerror}): set TMPDIR to a folder with more, or {MEMORY} to more memory"
        ) from error
    return np.ndarray(shape[::-1], dtype, buffer=held).T


def room_for(rows: int) -> Room:
    """Room for the arrays of a run of so many rows.

    Raises:
        UsageError: if ``STALLSCOPE_MEMORY`` is no amount of memory.
    """
    size = rows * BYTES_PER_ROW
    # To look takes as long as the ledger of a small run.
    if size <= _ALWAYS_THERE and not os.environ.get(MEMORY):
        return in_memory
    return in_memory if size <= memory_to_give() else on_disk


def memory_to_give() -> int:
    """Bytes that runs may take.

    Raises:
        UsageError: as ``room_for``.
    """
    said = os.environ.get(MEMORY)
    if not said:
        return _available() // 2
    text = said.strip().lower()
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    number = text.removesuffix(unit).strip()
    if not unit or not number.replace(".", "", 1).isdecimal():
        raise UsageError(f"{MEMORY}={said}: say how much memory there is, as 3GB or 800MB")
    return int(float(number) * _UNITS[unit])


def share_memory(processes: int) -> None:
    """Leave this process one of so many parts of the memory that there is to give."""
    os.environ[MEMORY] = f"{memory_to_give() // processes // 1000}kB"


def _available() -> int:
    return min(_of_machine(), *(_of_container(*files) for files in _OF_CONTAINERS))


def _of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return _USUAL_MEMORY
    kib = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(next(kib, 0)) * 1024 or _USUAL_MEMORY


def _of_container(limit: Path, used: Path) -> int:
    """What a container may still take; no bound where it has none."""
    try:
        return max(int(limit.read_text()) - int(used.read_text()), 0)
    except (OSError, ValueError):
        return _NO_LIMIT


def folder_for_files() -> str:
    """Where files are put that may be large, as long as a command runs."""
    # What /tmp holds is in memory on many systems; what /var/tmp holds never is.
    if "TMPDIR" not in os.environ and os.access("/var/tmp", os.W_OK):
        return "/var/tmp"
    return tempfile.gettempdir()


def _reserve(file: int, size: int) -> None:
    """Make room at once: a page that the disk does not take later on ends the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.truncate(file, size)
