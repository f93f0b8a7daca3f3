"""Dump PyTorch's Flight Recorder before and while rank 0 waits in a collective that rank 1 leaves out.

    torchrun --nproc-per-node 2 -m gpu.one_gpu_rank gpu.skip_collective OUT DEVICE

``OUT/before`` gets the ranks' dumps of complete collectives. ``OUT/hanging`` gets those that PyTorch
itself writes after NCCL's timeout; with gloo, which writes none, the ranks write them.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed
from torch._C import _distributed_c10d as c10d

from .ranks import connect, device_of

#: Complete collectives.
COLLECTIVES = 5
_TIMEOUT = timedelta(seconds=20)
_PATIENCE_SECONDS = 80.0
_WRITTEN_SECONDS = 2.0


def main(out: Path, device: torch.device) -> None:
    before, hanging = out / "before", out / "hanging"
    for folder in (before, hanging):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "1"
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = str(hanging / "trace_rank_")
    # torchrun would stop a rank that has not written its dump once another one has ended.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connect(device, timeout=_TIMEOUT)
    rank, by_nccl = distributed.get_rank(), distributed.get_backend() == "nccl"
    dump = c10d._dump_nccl_trace if by_nccl else c10d._dump_fr_trace
    for number in range(COLLECTIVES):
        distributed.all_reduce(torch.ones(number + 1, device=_of(device)))
    if device.type == "cuda":
        torch.cuda.synchronize()
    # Until PyTorch's own thread has seen the last one's end.
    time.sleep(_WRITTEN_SECONDS)
    (before / f"trace_rank_{rank}").write_bytes(dump())
    # Kept: nothing waits for it.
    waiting = []
    if rank == 0:
        left_out = torch.ones(COLLECTIVES + 1, device=_of(device))
        waiting.append(distributed.all_reduce(left_out, async_op=True))
    if not by_nccl:
        time.sleep(_WRITTEN_SECONDS)
        (hanging / f"trace_rank_{rank}").write_bytes(dump())
    until = time.monotonic() + _PATIENCE_SECONDS
    while len(list(hanging.iterdir())) < distributed.get_world_size() and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(_WRITTEN_SECONDS)
    # Without waiting for the collective.
    os._exit(0)


def _of(device: torch.device) -> torch.device:
    """Return where this process group reduces."""
    return device if distributed.get_backend() == "nccl" else torch.device("cpu")


if __name__ == "__main__":
    main(Path(sys.argv[1]), device_of(sys.argv[2]))
