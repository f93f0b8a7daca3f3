"""Where large arrays lie: in memory, or wherever whoever holds a run has room for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

#: Makes an array of so many steps × ranks that lies rank by rank; nothing is written in it yet.
Room = Callable[[tuple[int, int], npt.DTypeLike], npt.NDArray[Any]]


def in_memory(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The usual room."""
    return np.empty(shape[::-1], dtype).T
