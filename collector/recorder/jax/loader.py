"""``measure_input`` for JAX: the speed of a loader without training."""

from __future__ import annotations

from typing import Any, Optional

import jax

from ..input.measure import Loader, measure_input_of, name_of, without_stages
from .batches import samples_of


def loader_of(data: Any) -> Loader:
    """Describe a loader; raise ``TypeError`` if it is not iterable."""
    if not hasattr(data, "__iter__"):
        raise TypeError(
            "data must be an iterable of batches; %s is not iterable" % type(data).__name__
        )
    kind = "iterator" if hasattr(data, "__next__") else name_of(type(data))
    return Loader("jax", kind, lambda: iter(data), _samples_in, 1, without_stages(data))


def _samples_in(batch: Any) -> Optional[int]:
    return samples_of(batch, jax.process_count(), jax.local_device_count())


measure_input = measure_input_of(loader_of)
