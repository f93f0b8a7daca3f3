"""Reductions by FSDP2 (``torch.distributed.fsdp.fully_shard``) and by DeepSpeed's engine, on CPUs.

With FSDP2, each group of parameters is gathered before its forward and its backward pass, and its
gradients are reduced and scattered in backward. DeepSpeed reduces what fills a bucket in backward, and
the rest after it. On CPUs a rank does nothing else meanwhile, so all the time in these collectives is
exposed. On a device they overlap with compute, which the host cannot see.
"""

from __future__ import annotations

import copy
import functools
import sys
from time import monotonic_ns
from typing import Any, Callable, Dict, List, Optional

import torch

from ..guards import patch
from ..loop_steps import Reduction
from .gradient_timestamps import GradientClock
from .reductions import ForwardHook, Reductions, Report
from .waits import Waits

# What waits for other ranks in DeepSpeed's forward and backward passes.
_DEEPSPEED_COLLECTIVES = (
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
)
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


class DeepSpeedReductions(Reductions):
    """Reductions by DeepSpeed's engine."""

    needs_gradients = False

    def __init__(self, engine: Any) -> None:
        super().__init__(_why_deepspeed_is_unseen(engine))
        self.counts = self.reason is None
        self._engine = engine
        self._waits: Optional[Waits] = None
        # Reductions so far: they identify themselves.
        self._reductions = 0
        # Whether a forward pass since the latest reduction has begun.
        self._in_step = False

    def install(self, gradients: Optional[GradientClock], report: Report, waits: Waits) -> None:
        if not self.counts:
            return
        original = self._engine.allreduce_gradients

        @functools.wraps(original)
        def allreduce_gradients(*args: Any, **kwargs: Any) -> Any:
            # Gradients that only accumulate are reduced with the step's last ones.
            if not self._engine.is_gradient_accumulation_boundary():
                return original(*args, **kwargs)
            self._reductions += 1
            self._in_step = False
            if gradients is None:
                result = original(*args, **kwargs)
                report(Reduction(self._reductions, None, None))
                return result
            waited, _ = waits.before(self._reductions)
            began = monotonic_ns()
            result = original(*args, **kwargs)
            report(Reduction(self._reductions, began, monotonic_ns(), waited=waited))
            return result

        self._undo.append(patch(self._engine, "allreduce_gradients", allreduce_gradients))
        if gradients is not None:
            self._waits = waits
            self._undo.append(self._engine.register_forward_pre_hook(ForwardHook(self)).remove)
            backend = _deepspeed_backend()
            for name in _DEEPSPEED_COLLECTIVES:
                if callable(getattr(backend, name, None)):
                    timed = waits.timed(getattr(backend, name))
                    self._undo.append(patch(backend, name, timed))

    def before_forward(self) -> None:
        """Leave the collectives after the previous reduction, as of the norm, to the previous step.

        In the Trainer, those of this iteration come before its forward pass.
        """
        if torch.is_grad_enabled() and not self._in_step:
            self._in_step = True
            assert self._waits is not None
            self._waits.settle_earlier()


def is_deepspeed(model: Any) -> bool:
    """Return whether the model is an engine of DeepSpeed."""
    return type(model).__module__.startswith("deepspeed.")


def deepspeed_reduces(model: Any) -> bool:
    """Return whether the model is an engine of DeepSpeed whose reductions can be seen."""
    return is_deepspeed(model) and _why_deepspeed_is_unseen(model) is None


def _deepspeed_backend() -> Any:
    """Return the object that runs DeepSpeed's collectives."""
    return getattr(sys.modules.get("deepspeed.comm.comm"), "cdb", None)


def _why_deepspeed_is_unseen(engine: Any) -> Optional[str]:
    """Return why the engine's reductions cannot be seen; None where they can."""
    hidden = "DeepSpeed's engine reduces gradients where it cannot be seen"
    try:
        if type(engine).__name__ != "DeepSpeedEngine" or not engine.enable_backward_allreduce:
            return hidden
        if engine.zero_optimization_stage() > 2:
            return hidden + ": ZeRO stage 3 gathers parameters meanwhile"
        if any(parameter.device.type != "cpu" for parameter in engine.module.parameters()):
            return (
                "on a device DeepSpeed's reductions overlap with compute, which the host cannot see"
            )
        unusual = (
            # With these the engine's gradients are reduced elsewhere, or one rank after the other.
            ("managed_gradient_accumulation", False),
            ("is_deepcompile_enabled", True),
        )
        if any(_answer(engine, name, not unseen) is unseen for name, unseen in unusual):
            return hidden
        all_at_once = getattr(engine.optimizer, "use_multi_rank_bucket_allreduce", True)
        zenflow = getattr(engine.optimizer, "zenflow", False)
        return hidden if zenflow or not all_at_once or _deepspeed_backend() is None else None
    except Exception as error:
        return "%s: %r" % (hidden, error)


def _answer(engine: Any, name: str, default: bool) -> bool:
    """Return the result of one of the engine's methods, which old versions lack."""
    method = getattr(engine, name, None)
    return bool(method()) if callable(method) else default


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
    all_groups: List[Any] = []
    for module in _sharded_modules(model):
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [state._fsdp_param_group]
        all_groups += [group for group in groups if group is not None and group not in all_groups]
    return all_groups if all(hasattr(group, "_reduce_scatter_comm") for group in all_groups) else []


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
