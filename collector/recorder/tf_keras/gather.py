"""Gather logs over Horovod's collectives for TensorFlow."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any, List, Union

from ..gathering import gather
from .facts import horovod_world

logger = logging.getLogger("stallscope")


def gather_logs(log_dir: Union[str, "os.PathLike[str]"]) -> List[Path]:
    """Bring the logs of all ranks into rank 0's folder, over Horovod; for ranks that share no disk.

        model.fit(data, callbacks=[StepLogger("/tmp/logs")])
        gather_logs("/tmp/logs")

    All ranks call it after training: it is a collective, and the others wait for a rank that does not
    call it.

    Args:
        log_dir: the folder that was given to ``StepLogger``.

    Returns:
        The files written on rank 0; an empty list on other ranks.
    """
    world = horovod_world()
    if world is None:
        logger.warning("stallscope: logs cannot be gathered: Horovod is not initialised")
        return []
    return gather(log_dir, world, _broadcast)


def _broadcast(logs: Any, root: int) -> Any:
    horovod = sys.modules.get("horovod.tensorflow") or __import__(
        "horovod.tensorflow", fromlist=["broadcast_object"]
    )
    return horovod.broadcast_object(logs, root_rank=root, name="stallscope.logs.%d" % root)
