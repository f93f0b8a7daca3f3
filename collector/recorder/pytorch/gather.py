"""Gather logs over the collectives that train: Horovod's or torch.distributed's."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, List, Union

import torch

from ..gathering import gather
from .facts import world_of_training


def gather_logs(log_dir: Union[str, "os.PathLike[str]"]) -> List[Path]:
    """Bring the logs of all ranks into rank 0's folder; for ranks that share no disk.

        with StepLogger("/tmp/logs", optimizer=optimizer, model=model) as log:
            ...
        gather_logs("/tmp/logs")

    All ranks call it after training: it is a collective, and the others wait for a rank that does not
    call it. A single process has nothing to gather.

    Args:
        log_dir: the folder that was given to ``StepLogger``.

    Returns:
        The files written on rank 0; an empty list on other ranks.
    """
    return gather(log_dir, world_of_training(), _broadcast)


def _broadcast(logs: Any, root: int) -> Any:
    horovod = sys.modules.get("horovod.torch")
    if horovod is not None and horovod.is_initialized():
        return horovod.broadcast_object(logs, root_rank=root, name="stallscope.logs.%d" % root)
    carried = [logs]
    torch.distributed.broadcast_object_list(carried, src=root)
    return carried[0]
