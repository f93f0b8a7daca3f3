"""Read the figures of the rank's own GPU from NVIDIA's driver, where its library is installed.

A separate thread asks the driver, which may not answer while a GPU hangs: the log must still be written.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any, Callable, List, Mapping, Optional, Tuple

from .figures import FigureColumn, FigureSource

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
