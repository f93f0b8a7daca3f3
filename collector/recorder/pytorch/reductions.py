"""Time the reductions of gradients by Horovod or DistributedDataParallel.

Horovod's optimizer waits for its allreduces in ``synchronize``, which ``step`` calls, or the user calls
before clipping gradients. It is patched on the instance. DistributedDataParallel waits in a callback at
the end of backward; a second callback, queued from inside a queued one, runs after that. The optimizer's
step would be too late for both: it comes after clipping and unscaling.

Before forward, DistributedDataParallel broadcasts rank 0's buffers, such as the means of batch
normalization: the other ranks wait there until rank 0 begins its forward pass.
"""

from __future__ import annotations

import functools
from time import monotonic_ns
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from ..guards import patch
from ..loop_steps import Reduction
from .gradient_timestamps import GradientClock, after_backward
from .waits import Waits

Report = Callable[[Reduction], None]

# Where Lightning Fabric's wrappers are, in the packages ``lightning`` and ``lightning_fabric``.
_FABRIC = ("lightning.fabric.", "lightning_fabric.")


class Reductions:
    """The base class, and reductions that cannot be seen."""

    #: Whether reductions are seen at all.
    counts = False
    #: Whether all ranks have the same weights after them, as far as they are seen.
    averages = True
    #: Whether hooks on the gradients time them.
    needs_gradients = True

    def __init__(self, reason: Optional[str] = None) -> None:
        #: Why reductions cannot be timed; None where they can, or where there are none.
        self.reason = reason
        # Functions that restore optimizer and model.
        self._undo: List[Callable[[], None]] = []

    def install(self, gradients: Optional[GradientClock], report: Report, waits: Waits) -> None:
        """Start to watch; times are taken only with ``gradients``."""

    def before_forward(self) -> None:
        """Note that a forward pass of the model begins."""

    def before_module(self) -> None:
        """Note that the forward pass of a wrapped module begins."""

    def facts(self) -> Dict[str, Any]:
        """Return what is known once a step is done."""
        return {}

    def waits_by_group(self, ends: bool) -> Optional[Dict[str, Any]]:
        """Return facts of waits by process group, if there is news; ``ends`` if the recording does."""
        return None

    def remove(self) -> None:
        """Restore optimizer and model."""
        while self._undo:
            self._undo.pop()()


class HorovodReductions(Reductions):
    """Reductions by ``hvd.DistributedOptimizer``."""

    counts = True

    def __init__(self, optimizer: Any) -> None:
        super().__init__()
        self._optimizer = optimizer

    def install(self, gradients: Optional[GradientClock], report: Report, waits: Waits) -> None:
        original = self._optimizer.synchronize

        @functools.wraps(original)
        def synchronize(*args: Any, **kwargs: Any) -> Any:
            # Clipping gradients may call it again: without new gradients it is the same reduction.
            if gradients is None:
                result = original(*args, **kwargs)
                report(Reduction(None, None, None))
                return result
            ready, device_ready = gradients.last, gradients.device_last
            result = original(*args, **kwargs)
            # From here on the stream waits for the reduction, even if the host has not.
            report(Reduction(ready, ready, monotonic_ns(), device_ready, gradients.timestamp()))
            return result

        if gradients is not None:
            gradients.watch_backwards()
        self._undo.append(patch(self._optimizer, "synchronize", synchronize))


class DdpReductions(Reductions):
    """Reductions by ``DistributedDataParallel``."""

    counts = True

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model
        self._gradients: Optional[GradientClock] = None
        self._report: Report = _ignored
        self._waits: Optional[Waits] = None
        # Forward passes whose backward pass will reduce: they identify reductions.
        self._forwards = 0
        # When the buffers' broadcast began, and the device's timestamp of that; None without one.
        self._broadcast: Optional[Tuple[int, Any]] = None

    def install(self, gradients: Optional[GradientClock], report: Report, waits: Waits) -> None:
        self._gradients, self._report, self._waits = gradients, report, waits
        if gradients is not None and self._model.find_unused_parameters:
            # Every pass may have another last gradient.
            gradients.watches_all = True
        if gradients is not None and _has_buffers(self._model):
            hook = BroadcastHook(self)
            self._undo.append(self._model.module.register_forward_pre_hook(hook).remove)
        self._undo.append(self._model.register_forward_pre_hook(ForwardHook(self)).remove)

    def remove(self) -> None:
        super().remove()
        if self._gradients is not None:
            self._gradients.on_gradient = None

    def before_forward(self) -> None:
        """Note whether the next backward pass will reduce, which the forward pass decides."""
        if not torch.is_grad_enabled():
            return
        reduces = self._model.require_backward_grad_sync
        if self._gradients is not None and self._model.will_sync_module_buffers():
            self._broadcast = monotonic_ns(), self._gradients.timestamp()
        if reduces:
            self._forwards += 1
        if self._gradients is not None:
            self._gradients.on_gradient = self._first_gradient if reduces else None
        elif reduces:
            self._report(Reduction(None, None, None))

    def before_module(self) -> None:
        """Note that the wrapped module's forward pass begins, after the broadcast of its buffers."""
        broadcast, self._broadcast = self._broadcast, None
        if broadcast is not None and self._waits is not None:
            self._waits.add(*broadcast)

    def _first_gradient(self) -> None:
        """Handle the first gradient of a backward pass: request a callback at its end."""
        assert self._gradients is not None
        self._gradients.on_gradient = None
        after_backward(self._backward_ended)

    def _backward_ended(self) -> None:
        """Queue a callback that runs after the model's own, which waits for the reduction."""
        assert self._gradients is not None
        self._gradients.end_backward()
        after_backward(self._record_reduction)

    def _record_reduction(self) -> None:
        gradients, waits, cause = self._gradients, self._waits, self._forwards
        assert gradients is not None
        assert waits is not None
        reduced, device_reduced = monotonic_ns(), gradients.timestamp()
        ready, device_ready = gradients.last, gradients.device_last
        waited = waits.before(cause)
        self._report(Reduction(cause, ready, reduced, device_ready, device_reduced, *waited))
        # A reentrant checkpoint runs another backward pass: the last pass's end counts.
        gradients.on_gradient = self._first_gradient


class Updates(Reductions):
    """Updates of an optimizer that does not reduce: they define the steps."""

    counts = True

    def __init__(self, optimizer: Any, reason: Optional[str] = None) -> None:
        super().__init__(reason)
        self._optimizer = optimizer

    def install(self, gradients: Optional[GradientClock], report: Report, waits: Waits) -> None:
        def updated(*_: Any) -> None:
            if gradients is None:
                report(Reduction(None, None, None))
            else:
                report(Reduction(gradients.last, gradients.last, None, gradients.device_last))

        if gradients is not None:
            gradients.watch_backwards()
        self._undo.append(self._optimizer.register_step_post_hook(updated).remove)


def innermost_model(model: Any) -> Any:
    """Return the model inside the wrappers of ``torch.compile`` and of Lightning Fabric's ``setup``."""
    while True:
        name = "_forward_module" if _is_of(model, _FABRIC) else "_orig_mod"
        inner = getattr(model, name, None)
        if inner is None:
            return model
        model = inner


def innermost_optimizer(optimizer: Any) -> Any:
    """Return the optimizer inside a library's wrapper, which makes the real updates."""
    if _is_of(optimizer, ("megatron.",)):
        # Of several, the last one ends the update.
        chained = getattr(optimizer, "chained_optimizers", None) or [optimizer]
        return getattr(chained[-1], "optimizer", chained[-1])
    wrapped = _is_of(optimizer, (*_FABRIC, "accelerate."))
    return getattr(optimizer, "optimizer", optimizer) if wrapped else optimizer


class ForwardHook:
    """A hook of the model that copies and pickles as a hook that does nothing."""

    def __init__(self, reductions: Optional[Reductions] = None) -> None:
        self._reductions = reductions

    def __call__(self, *_: Any) -> None:
        if self._reductions is not None:
            self._reductions.before_forward()

    def __reduce__(self) -> Any:
        return type(self), ()


class BroadcastHook(ForwardHook):
    """A hook of the module inside DistributedDataParallel. Compiled modules do not call it."""

    def __call__(self, *_: Any) -> None:
        if self._reductions is not None and not is_compiling():
            self._reductions.before_module()


def _is_of(wrapper: Any, packages: Tuple[str, ...]) -> bool:
    return type(wrapper).__module__.startswith(packages)


def _has_buffers(model: Any) -> bool:
    """Return whether DistributedDataParallel broadcasts buffers of its module."""
    return bool(model.broadcast_buffers and getattr(model, "modules_buffers", ()))


def is_compiling() -> bool:
    """Return whether torch's compiler traces the code that calls this function."""
    compiler = getattr(torch, "compiler", None)
    return compiler is not None and bool(compiler.is_compiling())


def _ignored(_: Reduction) -> None:
    pass
