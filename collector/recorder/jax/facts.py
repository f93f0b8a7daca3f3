"""Facts of JAX and its devices."""

from __future__ import annotations

from typing import Any, Dict

import jax

from ..job.facts import SWITCHED_OFF, WHOLE_STEP, known, module_version

_LIBRARIES = ("jax", "jaxlib", "flax", "optax")


def training_facts(size: int, stages: bool) -> Dict[str, Any]:
    """Return facts of a training by ``size`` processes; the compiled step shows none."""
    return {
        "framework": "jax",
        "versions": {name: module_version(name) for name in _LIBRARIES},
        "devices": known(
            lambda: sorted({device.platform.upper() for device in jax.local_devices()})
        ),
        # Whether the step reduces its gradients cannot be seen.
        "gradients_reduced": True if size == 1 else None,
        "stamps": timestamps(size, stages),
    }


def timestamps(size: int, stages: bool) -> Dict[str, Any]:
    """Return which timestamps are taken, and why others are not."""
    if not stages:
        return {"placed": ["data"], "reason": SWITCHED_OFF}
    if size > 1:
        reason = "the compiled step reduces its gradients where no timestamp can be taken"
        return {"placed": ["data"], "reason": reason, "input_exposed": True}
    return {"placed": ["data", "ready", "reduced"], "reason": None, "ready": WHOLE_STEP}


#: The timestamps of a loop that never calls ``log.results``.
NO_RESULTS = {
    "placed": ["data"],
    "reason": "log.results was never called, so a step ends when the host is done with it",
}
