"""Find out which launch of a job this process belongs to, and when it started.

The launcher (torchrun, horovodrun, Slurm and others), Ray Train or JAX knows; no collective is started.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Mapping, Optional, Tuple

from .world import ray_worker

#: torchrun's name of a job, the same after its restarts.
TORCHRUN_ID = "TORCHELASTIC_RUN_ID"
# Names that identify no job: torchrun's default, and Spark's for every job.
_NO_NAMES = (["none"], ["0"])
_TORCHRUN_RESTARTS = "TORCHELASTIC_RESTART_COUNT"

# Variables that together name one launch of a job, the same on all of its ranks.
_LAUNCH_VARIABLES: Tuple[Tuple[str, ...], ...] = (
    (TORCHRUN_ID,),
    ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    ("PMIX_NAMESPACE",),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("MASTER_ADDR", "MASTER_PORT"),
)


def launch_of_training(size: int) -> Optional[str]:
    """Return the name of this launch from Ray Train, otherwise from the launcher or from JAX."""
    ray = ray_worker()
    if ray is not None:
        return ray.launch
    return launch_name(os.environ, size) or _jax_coordinator()


def _jax_coordinator() -> Optional[str]:
    """Return the address at which the processes of ``jax.distributed`` meet; None where unknown."""
    # Not public, and asking it starts no devices.
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    address = getattr(state, "coordinator_address", None)
    return "jax.distributed:%s" % address if isinstance(address, str) else None


def run_id_of_training(log_dir: Path) -> Optional[str]:
    """Return the run's id from the user or Ray Train; None where the ranks must agree on one.

    After a failure Ray may give a host other ranks: only the same id on all hosts keeps their logs
    together. Each log folder of a training is a separate run.
    """
    given = os.environ.get("STALLSCOPE_RUN_ID")
    if given:
        return given
    ray = ray_worker()
    if ray is None:
        return None
    return hashlib.sha256(("%s %s" % (ray.launch, log_dir)).encode()).hexdigest()[:12]


def launch_name(env: Mapping[str, str], size: int) -> Optional[str]:
    """Return a name of this launch that all ranks share; None where the launcher gives none."""
    for names in _LAUNCH_VARIABLES:
        values = [env.get(name) for name in names]
        if all(values) and values not in _NO_NAMES:
            return ":".join([names[0], *[str(value) for value in values]])
    if size == 1:
        return "process:%s:%d:%d" % (socket.gethostname(), os.getpid(), process_start_ns())
    return None


def rejoins(env: Mapping[str, str]) -> bool:
    """Return whether the launcher may have replaced a process of this rank.

    Then an earlier log of the rank may belong to the same job.
    """
    if ray_worker() is not None:
        return True
    restarts = env.get(_TORCHRUN_RESTARTS, "")
    return is_elastic(env) or (restarts.isdigit() and int(restarts) > 0)


def is_elastic(env: Mapping[str, str]) -> bool:
    """Return whether Horovod may change the ranks of this process while it runs."""
    return env.get("HOROVOD_ELASTIC") == "1"


def job_start_ns() -> Optional[int]:
    """Return when the job began, in monotonic ns; None if it began with its process.

    Ray's workers are older than their jobs: each training function runs in a new thread, this one.
    """
    if ray_worker() is None:
        return None
    return _start_ns("/proc/self/task/%d/stat" % threading.get_native_id())


def process_start_ns(pid: Optional[int] = None) -> int:
    """Return the monotonic time when a process (this one) started, in ns; now where that is unknown."""
    return _start_ns("/proc/%s/stat" % ("self" if pid is None else pid))


def _start_ns(path: str) -> int:
    try:
        stat = Path(path).read_bytes()
        # The command's name, in parentheses, may contain blanks; starttime is the 20th field after it.
        ticks = int(stat.rsplit(b")", 1)[1].split()[19])
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        age_ns = boot_ns - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return time.monotonic_ns() - age_ns
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic_ns()
