"""Decide which logs belong together: the run's id and the process's generation.

This starts no collective: a rank without the callback would hang the job. The id comes from
``STALLSCOPE_RUN_ID`` or from Ray Train's name of the run. Otherwise the first rank writes ``run.json``
into the log folder and the others read it. Where ranks do not share the folder, the facts contain the
launcher's name of the job, and the parser matches the logs by it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import socket
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from .format import file_name, header_facts
from .ray_train import ray_worker
from .world import World

# If the launcher gives the job no name, ranks that start within this time belong to one job.
_SAME_JOB_SECONDS = 600
# How long a rank waits for the first rank to finish writing a run.json of a few hundred bytes.
_READ_ATTEMPTS = 20
_READ_PAUSE_SECONDS = 0.05


class RunIdentity(NamedTuple):
    run_id: str
    generation: int


# torchrun's name of a job, the same after its restarts.
_TORCHRUN_ID = "TORCHELASTIC_RUN_ID"
# Names that identify no job: torchrun's default, and Spark's for every job.
_NO_NAMES = (["none"], ["0"])
_TORCHRUN_RESTARTS = "TORCHELASTIC_RESTART_COUNT"

# Variables that together name one launch of a job, the same on all of its ranks.
_LAUNCH_VARIABLES: Tuple[Tuple[str, ...], ...] = (
    (_TORCHRUN_ID,),
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
    return env.get("HOROVOD_ELASTIC") == "1" or (restarts.isdigit() and int(restarts) > 0)


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


def join_run(
    log_dir: Path,
    world: World,
    run_id: Optional[str],
    launch: Optional[str],
    wall_ns: int,
    elastic: bool = False,
) -> RunIdentity:
    """Join the run of this job; the first process of a job creates it.

    In a folder that an earlier job has used, a job writes another file, ``run-1.json`` and so on. That
    is a new run, or a new generation of the run where ``run_id`` is the same. In an elastic job a
    replaced rank rejoins its run.
    """
    generation = 0
    for number in itertools.count():
        path = log_dir / ("run.json" if number == 0 else "run-%d.json" % number)
        new = RunIdentity(run_id or uuid.uuid4().hex[:12], generation)
        about = {"launch": launch, "size": world.size, "wall_ns": wall_ns}
        if _create_exclusively(path, {**new._asdict(), **about}):
            return new
        found = _read(path)
        if found is None:
            continue
        there = RunIdentity(found["run_id"], found["generation"])
        # torchrun restarts all processes when a host joins, and does not count that.
        untouched = _SAME_JOB_SECONDS if (launch or "").startswith(_TORCHRUN_ID) else 0
        if _same_job(found, world, run_id, launch, wall_ns) and (
            elastic or not _has_log(log_dir, world.rank, there, untouched)
        ):
            return there
        if there.run_id == run_id:
            generation = max(generation, there.generation + 1)
    raise AssertionError("unreachable: itertools.count() does not end")


def _same_job(
    found: Dict[str, Any],
    world: World,
    run_id: Optional[str],
    launch: Optional[str],
    wall_ns: int,
) -> bool:
    if run_id is not None and found["run_id"] != run_id:
        return False
    if launch is not None or found.get("launch") is not None:
        return bool(found.get("launch") == launch)
    age_seconds = abs(wall_ns - found["wall_ns"]) / 1e9
    return found.get("size") == world.size and age_seconds < _SAME_JOB_SECONDS


def _has_log(log_dir: Path, rank: int, identity: RunIdentity, untouched_s: float) -> bool:
    """Return whether the rank has already logged to the run: then this process is of a later job.

    Launch names repeat: the rendezvous port is often the same for every job. Only a log that was not
    written to for ``untouched_s`` seconds counts.
    """
    # Try names one by one: thousands of ranks that each listed the folder would keep its disk busy.
    for part in itertools.count():
        try:
            with (log_dir / file_name(rank, identity.generation, part)).open("rb") as file:
                if header_facts(file.readline()).get("run_id") == identity.run_id:
                    age = time.time() - os.fstat(file.fileno()).st_mtime
                    return not untouched_s or age > untouched_s
        except OSError:
            return False
        except ValueError:
            continue
    raise AssertionError("unreachable: itertools.count() does not end")


def _create_exclusively(path: Path, content: Dict[str, Any]) -> bool:
    """Return whether this process was the first to create the file."""
    try:
        descriptor = os.open(str(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
    return True


def _read(path: Path) -> Optional[Dict[str, Any]]:
    """Read a file of the first rank; None if it stays unreadable or is another program's."""
    for _ in range(_READ_ATTEMPTS):
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError):
            time.sleep(_READ_PAUSE_SECONDS)
            continue
        usable = (
            isinstance(found, dict)
            and isinstance(found.get("run_id"), str)
            and isinstance(found.get("generation"), int)
            and isinstance(found.get("wall_ns"), int)
        )
        return found if usable else None
    return None
