"""Train many small models with PyTorch, one per case, each with its own log folder.

    horovodrun -np 2 python torch_cases.py OUT [CASE …]    cases of two ranks, with Horovod
    python two_ranks.py torch_cases.py OUT [CASE …]        the same with DistributedDataParallel
    python torch_cases.py OUT [CASE …]                     cases of one process

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import torch
from asleep import wait_asleep
from case_runner import run_cases
from process_group import end_process_group
from pytorch.base import ALONE, DDP, HOROVOD, RANKED, RANKS, Case, rank

MODULES = ("loops", "slow_ranks", "loggers", "last_gradient", "faults", "batches", "one_process")


def main() -> None:
    out, *names = sys.argv[1:]
    if HOROVOD:
        import horovod.torch as hvd

        hvd.init()
        wait_asleep()
    if DDP:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    for module in MODULES:
        importlib.import_module(f"pytorch.{module}")
    run_cases(RANKS if RANKED else ALONE, Path(out), names, rank(), Case)
    end_process_group()


if __name__ == "__main__":
    main()
