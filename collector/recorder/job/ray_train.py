"""Read this worker's rank and its training run from Ray Train.

Ray's processes have ranks in their environment only once a backend has set them, and may inherit those
of a launcher that started Ray. After a failure Ray starts other processes of the same training run, with
another address. Ray is never imported here: its workers have done so.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple, Optional

# Private modules of the two versions of Ray Train that know the run's id.
_CONTEXT = "ray.train.v2._internal.execution.context"
_SESSION_BEFORE_2_51 = "ray.train._internal.session"


class RayWorker(NamedTuple):
    """A worker of Ray Train."""

    rank: int
    size: int
    local_rank: int
    #: The name of its training run: the same on all workers, and after restarts.
    launch: str


def ray_worker() -> Optional[RayWorker]:
    """Return this process's worker; None outside of Ray Train."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        run_id = _run_id()
        context = train.get_context()
        rank, size, local_rank = (
            int(context.get_world_rank()),
            int(context.get_world_size()),
            int(context.get_local_rank()),
        )
        launch = ":".join(["RAY_TRAIN", str(context.get_experiment_name()), run_id])
        return RayWorker(rank, size, local_rank, launch)
    except Exception:  # a driver, or a worker of something else than Ray Train
        return None


def _run_id() -> str:
    """Return Ray's id of the training run, or of its job where another version hides it.

    Raises:
        LookupError: if this process is no worker of Ray Train, which would then log a warning.
    """
    context, session = map(sys.modules.get, (_CONTEXT, _SESSION_BEFORE_2_51))
    known: Any = getattr(context, "_train_context", None)
    if known is not None:
        return str(known.train_run_context.run_id)
    known = None if session is None else session.get_session()
    if known is not None:
        return str(known.trial_info.id)
    if context is not None or session is not None:
        raise LookupError
    return os.environ["RAY_JOB_ID"]
