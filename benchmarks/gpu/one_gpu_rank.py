"""Run a module as a rank that may share its GPU with the other ranks of this host.

    torchrun --nproc-per-node 2 -m gpu.one_gpu_rank MODULE ARGUMENTS…

NCCL refuses two ranks of one host on one GPU. If there are fewer GPUs than ranks, each rank takes itself
for the only one of a separate host, and NCCL connects them by sockets.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import MutableMapping

_QUERY = ("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
_SOCKETS = {
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",
}


def share_gpu(env: MutableMapping[str, str], gpus: list[str]) -> None:
    """Change a rank's environment so that NCCL accepts it.

    Args:
        gpus: the UUIDs of this host's GPUs.
    """
    rank = int(env.get("RANK", env.get("HOROVOD_RANK", "0")))
    ranks = int(env.get("WORLD_SIZE", env.get("HOROVOD_SIZE", "1")))
    if not gpus or len(gpus) >= ranks:
        return
    env["NCCL_HOSTID"] = f"rank-{rank}"
    env.update(_SOCKETS)
    if "LOCAL_RANK" in env:
        env.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    # Two names of one GPU: netcheck takes NCCL if all ranks name different ones.
    env.setdefault("CUDA_VISIBLE_DEVICES", gpus[0] if rank % 2 else "0")


def gpus_of_host() -> list[str]:
    """Return the UUIDs of this host's GPUs; none without a driver."""
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


if __name__ == "__main__":
    share_gpu(os.environ, gpus_of_host())
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
