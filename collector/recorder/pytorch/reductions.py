"""Who reduces gradients in this training, and how one sees when they are reduced.

Horovod's optimizer waits for its allreduces in ``synchronize``, which ``step`` calls, or the user does
to clip gradients: it is timed on the instance. DistributedDataParallel waits in a callback at the end
of backward: another one, queued from inside a queued one, runs after it. The optimizer's step would be
too late for both, after clipping and unscaling.
"""

from __future__ import annotations

import functools
from time import monotonic_ns
from typing import Any, Callable, Optional

import torch

from .gradients import GradientClock, behind_backward
from .steps import Reduction

Report = Callable[[Reduction], None]


class Reductions:
    """Reductions of a training in which none can be seen; and what the other kinds have in common."""

    #: Whether reductions are seen at all.
    counts = False

    def __init__(self, reason: Optional[str] = None) -> None:
        #: Why it cannot be seen when gradients are reduced; None where it can, or nothing need be.
        self.reason = reason

    def install(self, gradients: Optional[GradientClock], report: Report) -> None:
        """Watch from now on; times are taken only with ``gradients``."""

    def remove(self) -> None:
        """Leave optimizer and model as they were found."""


class HorovodReductions(Reductions):
    """Those of ``hvd.DistributedOptimizer``."""

    counts = True

    def __init__(self, optimizer: Any) -> None:
        super().__init__()
        self._optimizer = optimizer
        self._wrapper: Any = None

    def install(self, gradients: Optional[GradientClock], report: Report) -> None:
        original = self._optimizer.synchronize

        @functools.wraps(original)
        def synchronize(*args: Any, **kwargs: Any) -> Any:
            # A gradient clipper may call it a second time: without new gradients it is the same one.
            if gradients is None:
                result = original(*args, **kwargs)
                report(Reduction(None, None, None))
                return result
            ready, mark = gradients.last, gradients.mark
            result = original(*args, **kwargs)
            # The stream that goes on from here waits for the reduction, whether the host has or not.
            report(Reduction(ready, ready, monotonic_ns(), mark, gradients.stamp()))
            return result

        if gradients is not None:
            gradients.watch_backwards()
        self._wrapper = self._optimizer.synchronize = synchronize

    def remove(self) -> None:
        # Something else was put there meanwhile: leave it.
        if self._wrapper is not None and vars(self._optimizer).get("synchronize") is self._wrapper:
            del self._optimizer.synchronize
        self._wrapper = None


class DdpReductions(Reductions):
    """Those of ``DistributedDataParallel``."""

    counts = True

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model
        self._gradients: Optional[GradientClock] = None
        self._report: Report = _ignored
        self._handle: Any = None
        # Forward passes whose backward pass will reduce: they tell reductions apart.
        self._forwards = 0

    def install(self, gradients: Optional[GradientClock], report: Report) -> None:
        self._gradients, self._report = gradients, report
        if gradients is not None and self._model.find_unused_parameters:
            # In every pass it may be another one that comes last.
            gradients.watches_all = True
        self._handle = self._model.register_forward_pre_hook(_ForwardHook(self))

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        if self._gradients is not None:
            self._gradients.on_gradient = None

    def forward_begins(self) -> None:
        """The model decides in its forward pass whether the next backward pass will reduce."""
        if not torch.is_grad_enabled():
            return
        reduces = self._model.require_backward_grad_sync
        if reduces:
            self._forwards += 1
        if self._gradients is not None:
            self._gradients.on_gradient = self._backward_runs if reduces else None
        elif reduces:
            self._report(Reduction(None, None, None))

    def _backward_runs(self) -> None:
        """The first gradient of a backward pass: have its end seen."""
        assert self._gradients is not None
        self._gradients.on_gradient = None
        behind_backward(self._backward_is_done)

    def _backward_is_done(self) -> None:
        """Queued before the model's own callback, which waits: the next one comes after that."""
        assert self._gradients is not None
        self._gradients.backward_is_over()
        behind_backward(self._gradients_are_reduced)

    def _gradients_are_reduced(self) -> None:
        gradients = self._gradients
        assert gradients is not None
        reduced, mark = monotonic_ns(), gradients.stamp()
        self._report(Reduction(self._forwards, gradients.last, reduced, gradients.mark, mark))
        # A reentrant checkpoint is a backward pass of its own: the last one's end counts.
        gradients.on_gradient = self._backward_runs


class Updates(Reductions):
    """Updates of an optimizer that reduces nothing itself: they tell what a step is."""

    counts = True

    def __init__(self, optimizer: Any, reason: Optional[str] = None) -> None:
        super().__init__(reason)
        self._optimizer = optimizer
        self._handle: Any = None

    def install(self, gradients: Optional[GradientClock], report: Report) -> None:
        def updated(*_: Any) -> None:
            if gradients is None:
                report(Reduction(None, None, None))
            else:
                report(Reduction(gradients.last, gradients.last, None, gradients.mark))

        if gradients is not None:
            gradients.watch_backwards()
        self._handle = self._optimizer.register_step_post_hook(updated)

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()


def reductions_of(optimizer: Any, model: Any, size: int) -> Reductions:
    """How this training reduces its gradients."""
    model = without_compiler(model)
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return DdpReductions(model)
    reason = None
    if hasattr(optimizer, "_starting_models"):
        reason = "Adasum reduces in the middle of the optimizer's step"
    elif hasattr(optimizer, "skip_synchronize"):
        return HorovodReductions(optimizer)
    elif size > 1:
        reason = "the optimizer is not Horovod's and the model not DistributedDataParallel"
    # Before torch 2.0 updates cannot be seen either.
    updates = hasattr(optimizer, "register_step_post_hook")
    return Updates(optimizer, reason) if updates else Reductions(reason)


def without_compiler(model: Any) -> Any:
    """The model inside what ``torch.compile`` has put around it."""
    return getattr(model, "_orig_mod", model)


class _ForwardHook:
    """A hook of the model, of which copies and pickled models get one that does nothing."""

    def __init__(self, reductions: Optional[DdpReductions] = None) -> None:
        self._reductions = reductions

    def __call__(self, *_: Any) -> None:
        if self._reductions is not None:
            self._reductions.forward_begins()

    def __reduce__(self) -> Any:
        return _ForwardHook, ()


def _ignored(_: Reduction) -> None:
    pass
