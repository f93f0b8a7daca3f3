"""Choose the CUDA device of a rank."""

from __future__ import annotations

import os
import socket
from typing import Optional

from .ranks import Ranks


def own_device(count: int, local_rank: int) -> Optional[int]:
    """Return the number of this rank's device; None without devices.

    Args:
        count: the devices that this process sees; some launchers show each process only its own.
        local_rank: the rank on its host.
    """
    if not count:
        return None
    return local_rank if local_rank < count else 0


def agreed_device(ranks: Ranks, device: Optional[int]) -> Optional[int]:
    """Return the number of this rank's device if every rank has a separate one, otherwise None.

    NCCL refuses two ranks on one device.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    everyone = ranks.collect(None if device is None else [socket.gethostname(), visible, device])
    distinct = {tuple(place) for place in everyone if place is not None}
    return device if len(distinct) == ranks.size else None
