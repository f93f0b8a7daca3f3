"""Read what a running ``fit`` shows of itself."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Dict, Optional

from ..facts import count_or_none


def fit_frame(model: Any, variable: Optional[str] = None) -> Optional[FrameType]:
    """Return the frame of the model's ``fit`` on this thread; None where there is none.

    Args:
        variable: a local variable of Keras' own ``fit``, which methods that override it do not have.
    """
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        code = frame.f_code
        is_fit = code.co_name == "fit" and (variable is None or variable in code.co_varnames)
        if is_fit and frame.f_locals.get("self") is model:
            return frame
        frame = frame.f_back
    return None


def planned(params: Optional[Dict[str, Any]]) -> Dict[str, Optional[int]]:
    """Return the planned epochs and batches, as far as ``fit`` knows them beforehand."""
    params = params or {}
    return {
        "epochs": count_or_none(params.get("epochs")),
        "batches_per_epoch": count_or_none(params.get("steps")),
    }
