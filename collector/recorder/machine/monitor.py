"""Read the figures of the host and its GPUs once a second, for lines of the log."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ..step_log.line_format import MachineRow
from . import host
from . import host as machine_host
from .connections import Connections
from .host import FigureColumn, FigureSource

_EVERY_NS = 1_000_000_000
# Tolerance for a flush that comes a little early.
_EARLY_NS = 50_000_000
# Facts about connections are totals, so a few are enough.
_FACTS_EVERY_NS = 30_000_000_000
# Slow sources are read so rarely that they cost this share of one core.
_SHARE = 0.0005

_LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK = 1
# Reasons for lower clocks, from nvml.h: the power cap and the power brake; slowdowns by heat.
_POWER, _HEAT = 0x04 | 0x80, 0x08 | 0x20 | 0x40
_EVERY_SECONDS = 1.0
# Older answers do not count.
_FRESH_SECONDS = 3.0
_FIGURES = (
    FigureColumn("gpu_percent", grows=False),
    FigureColumn("gpu_memory_mb", grows=False, divisor=10**6),
    FigureColumn("gpu_clock_mhz", grows=False),
    FigureColumn("gpu_power_cap", grows=False),
    FigureColumn("gpu_heat", grows=False),
)


class Monitor:
    """Figures of one process, of its GPU and, on the first rank of each host, of the host.

    Args:
        local_rank: the rank among those of its host, if it is known; the first one also writes the
            host's figures.
    """

    def __init__(self, local_rank: Optional[int]) -> None:
        self._sources: List[FigureSource] = [*machine_host.sources(), *host.sources_of_cgroup()]
        if not local_rank:
            self._sources += host.sources_of_host()
        with contextlib.suppress(Exception):  # there is no GPU, or no driver for it
            self._sources.append(source_of_gpu(local_rank or 0))
        self.columns = [
            "time_us",
            *(figure.name for source in self._sources for figure in source.figures),
        ]
        self._before: Dict[str, int] = {}
        self._last: Optional[int] = None
        self._due = [0] * len(self._sources)
        self._connections: Optional[Connections] = None
        self._look_due = self._facts_due = 0
        self._written: List[Dict[str, Any]] = []
        with contextlib.suppress(Exception):  # this system has no such counts
            self._connections = Connections()

    def row(self, now: int, at_the_end: bool = False) -> Optional[MachineRow]:
        """Return figures once a second, and at the end; None in between."""
        too_early = self._last is not None and now - self._last < _EVERY_NS - _EARLY_NS
        if too_early and not at_the_end:
            return None
        self._last = now
        cells: List[str] = []
        for at in range(len(self._sources)):
            cells += self._cells(at, now, at_the_end)
        return MachineRow(now, ",".join(cells))

    def connections(self, now: int, at_the_end: bool = False) -> Optional[Dict[str, Any]]:
        """Read the counts of connections to other hosts; return facts about them now and then."""
        if self._connections is None or (now < self._look_due and not at_the_end):
            return None
        begun = time.thread_time_ns()
        self._connections.look()
        cost = time.thread_time_ns() - begun
        self._look_due = now + max(_EVERY_NS - _EARLY_NS, int(cost / _SHARE))
        if now < self._facts_due and not at_the_end:
            return None
        totals = self._connections.totals()
        if totals == self._written:
            return None
        self._facts_due = now + _FACTS_EVERY_NS
        self._written = totals
        return {"connections": totals}

    def close(self) -> None:
        """Stop the sources' work in the background; files are closed with the monitor."""
        for source in self._sources:
            if source.close is not None:
                source.close()

    def _cells(self, at: int, now: int, at_the_end: bool) -> List[str]:
        source = self._sources[at]
        nothing = [""] * len(source.figures)
        if now < self._due[at] and not at_the_end:
            return nothing
        begun = time.thread_time_ns()
        try:
            values = source.read()
        except Exception:  # the file has gone or changed its format
            return nothing
        if source.is_slow:
            self._due[at] = now + int((time.thread_time_ns() - begun) / _SHARE)
        cells = []
        for figure, value in zip(source.figures, values):
            if value is None:
                cells.append("")
                continue
            value //= figure.divisor
            if figure.grows:
                before = self._before.get(figure.name)
                self._before[figure.name] = value
                # Growth counts from the first line.
                cells.append("" if before is None else str(value - before))
            else:
                cells.append(str(value))
        return cells


# -- Read the figures of the rank's own GPU from NVIDIA's driver ----------------------------------
#
# A separate thread asks the driver, which may not answer while a GPU hangs: the log must still be
# written.


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


def source_of_gpu(local_rank: int) -> FigureSource:
    """Return the figures of the GPU that this rank uses by convention.

    Args:
        local_rank: the rank among those of the host.

    Raises:
        OSError, AttributeError: without the driver's library, or a GPU for this rank.
    """
    nvml = ctypes.CDLL(_LIBRARY)
    _check(nvml.nvmlInit_v2())
    handle = ctypes.c_void_p()
    device = own_device(os.environ, local_rank)
    if device.isdigit():
        _check(nvml.nvmlDeviceGetHandleByIndex_v2(int(device), ctypes.byref(handle)))
    else:
        _check(nvml.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(handle)))

    def read() -> List[Optional[int]]:
        busy, memory = _Utilization(), _Memory()
        clock, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        known = [
            nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(busy)) == 0,
            nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0,
            nvml.nvmlDeviceGetClockInfo(handle, _SM_CLOCK, ctypes.byref(clock)) == 0,
            nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons)) == 0,
        ]
        held = [int(bool(reasons.value & mask)) for mask in (_POWER, _HEAT)]
        values = [busy.gpu, memory.used, clock.value, *held]
        return [value if ok else None for value, ok in zip(values, [*known, known[-1]])]

    latest = _Latest(read)
    return FigureSource(_FIGURES, latest.read, close=latest.stop.set)


class _Latest:
    """Asks once a second until it is stopped, and keeps the latest answer."""

    def __init__(self, ask: Callable[[], List[Optional[int]]]) -> None:
        self.stop = threading.Event()
        self._ask = ask
        # Raise errors of the first question here, not in the thread.
        self._answer: Tuple[float, List[Optional[int]]] = (time.monotonic(), ask())
        threading.Thread(target=self._ask_on, name="stallscope-gpu", daemon=True).start()

    def _ask_on(self) -> None:
        while not self.stop.wait(_EVERY_SECONDS):
            try:
                self._answer = (time.monotonic(), self._ask())
            except Exception:  # the recording works without it
                return

    def read(self) -> List[Optional[int]]:
        at, values = self._answer
        return values if time.monotonic() - at < _FRESH_SECONDS else [None] * len(values)


def own_device(env: Mapping[str, str], local_rank: int) -> str:
    """Return the index or the UUID of the GPU of a local rank.

    Launchers show either all GPUs to every rank, which uses the one of its local rank, or one GPU each.
    """
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str(local_rank)
    devices = [device.strip() for device in visible.split(",") if device.strip()]
    if not devices:
        raise OSError("no GPU is visible")
    return devices[0] if len(devices) <= local_rank else devices[local_rank]


def _check(status: Any) -> None:
    if status != 0:
        raise OSError("NVML answers %s" % status)
