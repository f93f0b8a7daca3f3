"""Count the samples of a batch."""

from __future__ import annotations

from typing import Any, Optional

import jax


def samples_of(batch: Any, processes: int, devices: int) -> Optional[int]:
    """Return this process's samples in a batch: the first dimension of its first array, or None.

    Args:
        batch: arrays in any structure.
        processes: the number of processes, for arrays that are spread over the devices of all.
        devices: the number of this process's devices. An array with such a first dimension may be one
            for ``pmap``, with a part for each device: its samples are unknown.
    """
    # The usual kinds of batch. Training has just filled the caches, and flattening takes longest.
    kind = type(batch)
    first = batch[0] if (kind is tuple or kind is list) and batch else batch
    shape = getattr(first, "shape", None)
    if not shape:
        leaves = jax.tree_util.tree_leaves(batch)
        first = next((leaf for leaf in leaves if getattr(leaf, "shape", None)), None)
        if first is None:
            return None
        shape = first.shape
    # A single process addresses all devices.
    if processes > 1 and not getattr(first, "is_fully_addressable", True):
        return int(shape[0]) // processes
    return None if shape[0] == devices else int(shape[0])
