"""Gather logs over the collectives of Keras' backend, where it has any."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import List, Union

from .facts import world_of_training

logger = logging.getLogger("stallscope")


def gather_logs(log_dir: Union[str, "os.PathLike[str]"]) -> List[Path]:
    """Bring the logs of all ranks into rank 0's folder, over torch.distributed; for ranks that share no
    disk.

    All ranks call it after training: it is a collective, and the others wait for a rank that does not
    call it. Backends other than torch cannot gather, and log a warning.

    Args:
        log_dir: the folder that was given to ``StepLogger``.

    Returns:
        The files written on rank 0; an empty list on other ranks.
    """
    if world_of_training().size == 1:
        return []
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        logger.warning("stallscope: logs are not gathered: torch.distributed is not initialised")
        return []
    from ..pytorch.gather import gather_logs as over_torch

    return over_torch(log_dir)
