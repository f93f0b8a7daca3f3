"""Gathering of logs over Horovod's collective of TensorFlow."""

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

    All ranks call it, after training: it is a collective, and a rank that does not call it keeps the
    others waiting.

    Args:
        log_dir: the folder that was given to ``StepLogger``.

    Returns:
        On rank 0 the files that were written; none on the others.
    """
    world = horovod_world()
    if world is None:
        logger.warning("stallscope: there is nothing to gather over: Horovod is not initialised")
        return []
    return gather(log_dir, world, _broadcast)


def _broadcast(logs: Any, root: int) -> Any:
    horovod = sys.modules.get("horovod.tensorflow") or __import__(
        "horovod.tensorflow", fromlist=["broadcast_object"]
    )
    return horovod.broadcast_object(logs, root_rank=root, name="stallscope.logs.%d" % root)
