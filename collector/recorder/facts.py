"""Facts of a run that hold for every framework: host, CPU cores, settings."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

_RECORDED_SETTINGS = re.compile(
    r"^_?(HOROVOD|NCCL|TF|OMP|MKL|GLOO|TORCH|KERAS)_|^CUDA_LAUNCH_BLOCKING$"
)
_SECRET_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
MASK = "***"


def host_facts() -> Dict[str, Any]:
    """The host, its clock and its CPU cores."""
    return {
        "host": socket.gethostname(),
        "clock_domain": _clock_domain(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "cpus_allowed": _cpus_allowed(),
    }


def settings(env: Mapping[str, str]) -> Dict[str, str]:
    """Environment settings that decide about speed, masked where the name looks like a secret's."""
    return {
        name: MASK if _SECRET_NAMES.search(name) else value
        for name, value in sorted(env.items())
        if _RECORDED_SETTINGS.match(name)
    }


def timeline_is_on(env: Mapping[str, str]) -> bool:
    return bool(env.get("HOROVOD_TIMELINE"))


def horovod_transports() -> Optional[List[str]]:
    """What the Horovod of this process can reduce with; None without one that says so."""
    for module in ("horovod.tensorflow", "horovod.torch"):
        horovod = sys.modules.get(module)
        if horovod is None:
            continue
        try:
            return [name for name, asked in _TRANSPORTS.items() if getattr(horovod, asked)()]
        except Exception:  # older ones have not all of them: no fact is worth the recording
            continue
    return None


# Whether it was built with a library, or runs on it.
_TRANSPORTS = {
    "nccl": "nccl_built",
    "ccl": "ccl_built",
    "mpi": "mpi_enabled",
    "gloo": "gloo_enabled",
}


def compression_name(compressor: Any) -> str:
    """Name a compressor of Horovod or a hook of DistributedDataParallel; ``none`` does not compress."""
    name = str(getattr(compressor, "__name__", type(compressor).__name__))
    name = name.replace("Compressor", "").lower()
    return "none" if name in _PLAIN_REDUCTIONS else name


# Among DistributedDataParallel's hooks, the one that reduces gradients as they are.
_PLAIN_REDUCTIONS = ("none", "allreduce_hook")


def _clock_domain() -> Optional[str]:
    """What names the monotonic clock: processes with the same one can be compared directly."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _cpus_allowed() -> Optional[int]:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None
