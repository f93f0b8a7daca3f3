"""Reductions by fully sharded data parallelism (FSDP2, ``torch.distributed.fsdp.fully_shard``) on CPUs.

Each group of parameters is gathered before its forward and its backward pass, and its gradients are
reduced and scattered in backward. On CPUs a rank does nothing else meanwhile, so all the time in these
collectives is exposed. On a device they overlap with compute, which the host cannot see.
"""

from __future__ import annotations

import copy
import sys
from time import monotonic_ns
from typing import Any, Callable, Dict, List, Optional

import torch

from ..loops.steps import Reduction
from ..patching import patch
from .gradients import GradientClock
from .reductions import ForwardHook, Reductions, Report
from .waits import Waits

# Where torch has had the class of sharded modules.
_MODULES = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")


def is_fully_sharded(model: Any) -> bool:
    """Return whether ``fully_shard`` was applied to the model or to parts of it."""
    return bool(_sharded_modules(model))


class FsdpReductions(Reductions):
    """Reductions of a model that ``fully_shard`` has sharded."""

    needs_gradients = False

    def __init__(self, model: torch.nn.Module) -> None:
        self._groups = _groups_of(model)
        super().__init__(_why_unseen(self._groups))
        self.counts = bool(self._groups)
        self._model = model
        self._report: Optional[Report] = None
        self._waits: Optional[Waits] = None
        # Forward passes whose backward pass may reduce: they identify reductions.
        self._forwards = 0
        # Whether a gather was asynchronous: when the rank waited for it is unknown from then on.
        self._unknown = False

    def install(self, gradients: Optional[GradientClock], report: Report, waits: Waits) -> None:
        self._report = report
        self._waits = None if gradients is None else waits
        self._undo.append(self._model.register_forward_pre_hook(ForwardHook(self)).remove)
        for group in self._groups:
            self._replace(group, "_all_gather_comm", self._gathering)
            self._replace(group, "_reduce_scatter_comm", self._reducing)

    def _replace(self, group: Any, name: str, timed: Callable[[Any], Any]) -> None:
        collective = getattr(group, name)
        self._undo.append(patch(group, name, _like(collective, timed(collective))))

    def before_forward(self) -> None:
        if torch.is_grad_enabled():
            self._forwards += 1

    def _gathering(self, gather: Any) -> Callable[..., Any]:
        """Return a gather that counts its time as waiting."""
        timed = gather if self._waits is None else self._waits.timed(gather.__call__)

        def gathering(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("async_op"):
                self._unknown = True
                return gather(*args, **kwargs)
            return timed(*args, **kwargs)

        return gathering

    def _reducing(self, reduce: Any) -> Callable[..., Any]:
        """Return a timed reduce-scatter; the last one of a backward pass is the reduction."""

        def reducing(*args: Any, **kwargs: Any) -> Any:
            waits, report = self._waits, self._report
            assert report is not None
            if waits is None or self._unknown:
                result = reduce(*args, **kwargs)
                report(Reduction(self._forwards, None, None))
                return result
            waited, _ = waits.before(self._forwards)
            waits.since = began = monotonic_ns()
            try:
                result = reduce(*args, **kwargs)
            finally:
                ended = waits.add(began)
                waits.settle()
            report(Reduction(self._forwards, began, ended, waited=waited))
            return result

        return reducing


def sharding(model: Any) -> Optional[Dict[str, bool]]:
    """Return facts of the sharding; None without one."""
    groups = _groups_of(model)
    if not groups:
        return None
    gathers_again = any(group.post_forward_mesh_info is not None for group in groups)
    return {"reshard_after_forward": gathers_again}


def shards_dtype(model: Any) -> Optional[str]:
    """Return the 16-bit type in which gradients are reduced, or ``none``; None without a sharding."""
    groups = _groups_of(model)
    if not groups:
        return None
    policy = groups[0].mp_policy
    dtype = policy.reduce_dtype or policy.param_dtype
    return "none" if dtype is None or dtype.itemsize > 2 else str(dtype).replace("torch.", "")


def _sharded_modules(model: Any) -> List[Any]:
    kinds = [getattr(sys.modules.get(name), "FSDPModule", None) for name in _MODULES]
    known = tuple(kind for kind in kinds if kind is not None)
    if not known or not isinstance(model, torch.nn.Module):
        return []
    return [module for module in model.modules() if isinstance(module, known)]


def _groups_of(model: Any) -> List[Any]:
    """Return the groups of parameters that communicate together; none where torch hides them."""
    found: List[Any] = []
    for module in _sharded_modules(model):
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [state._fsdp_param_group]
        found += [group for group in groups if group is not None and group not in found]
    return found if all(hasattr(group, "_reduce_scatter_comm") for group in found) else []


def _why_unseen(groups: List[Any]) -> Optional[str]:
    if not groups:
        return "this version of PyTorch does not show FSDP's collectives"
    if any(group.device.type != "cpu" for group in groups):
        return "on a device FSDP's collectives overlap with compute, which the host cannot see"
    if any(getattr(group, "_is_hsdp", False) for group in groups):
        return "the allreduces of hybrid sharding (HSDP) cannot be seen"
    return None


def _like(collective: Any, function: Callable[..., Any]) -> Any:
    """Return a copy of a collective that calls a function; it has the same type, which torch checks."""
    kind = type(collective)
    same = copy.copy(collective)
    calls = {"__call__": lambda _, *args, **kwargs: function(*args, **kwargs)}
    same.__class__ = type(kind.__name__, (kind,), calls)
    return same
