"""When gradients are there: a hook on every parameter that notes the time, the last one counts.

It runs when the parameter's gradient is complete, in front of the hook with which Horovod or
DistributedDataParallel starts to reduce it, so that communication still overlaps backward. Unused
parameters, several backward passes and reentrant checkpoints need no care: whatever came last was
last. ``torch.autograd.graph.register_multi_grad_hook`` would fire once instead, but costs ten times as
much and keeps all gradients until then, which makes autograd copy each of them.

On a CUDA device the hooks run before the work is done. There the last one takes a stamp of the stream
that the gradient comes on. Which one is the last is known when as many have come as in the backward pass
before; where fewer come, the pass's end has to do, which is later by what the host does meanwhile.
"""

from __future__ import annotations

import contextlib
from time import monotonic_ns
from typing import Any, Callable, Iterable, List, Optional

import torch

from .cuda import CudaClock


class GradientClock:
    """``last`` is when the last gradient was there, since somebody set it to None.

    ``on_gradient`` is called with every gradient while it is set. With a ``device``, ``mark`` is its
    stamp of the same.
    """

    __slots__ = (
        "_count",
        "_expected",
        "_handles",
        "_hooked",
        "_watches",
        "device",
        "last",
        "mark",
        "on_gradient",
    )

    def __init__(self, device: Optional[CudaClock] = None) -> None:
        self.device = device
        self.last: Optional[int] = None
        self.mark: Any = None
        self._watches = False
        # Gradients of the backward pass that runs, and of the one before.
        self._count = self._expected = 0
        self.on_gradient: Optional[Callable[[], None]] = None
        self._handles: List[Any] = []
        self._hooked: List[torch.Tensor] = []

    def hook(self, parameters: Iterable[torch.Tensor]) -> None:
        """Put hooks on those that train and have none yet: layers get unfrozen between epochs."""
        known = set(map(id, self._hooked))
        for parameter in parameters:
            if parameter.requires_grad and id(parameter) not in known:
                self._handles.append(_hook_on(parameter)(self._gradient_is_there))
                self._hooked.append(parameter)
                known.add(id(parameter))

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        self._hooked.clear()

    def stamp(self) -> Any:
        """The device's stamp of now; None without a device."""
        return None if self.device is None else self.device.stamp()

    def forget(self) -> None:
        """A new turn begins: gradients of the last one say nothing about it."""
        self.last = self.mark = None
        self._count = 0
        if self._watches:
            # A backward pass that failed had no end.
            self.on_gradient = self._backward_runs

    def watch_backwards(self) -> None:
        """See where backward passes end when nobody else does."""
        if self.device is not None:
            self._watches = True
            self.on_gradient = self._backward_runs

    def backward_is_over(self) -> None:
        if self._count < self._expected:
            self.mark = self.stamp()
        self._expected, self._count = self._count, 0

    def _backward_runs(self) -> None:
        self.on_gradient = None
        behind_backward(self._end_of_backward)

    def _end_of_backward(self) -> None:
        self.backward_is_over()
        self.on_gradient = self._backward_runs

    def _gradient_is_there(self, _: torch.Tensor) -> None:
        self.last = monotonic_ns()
        if self.device is not None:
            self._count += 1
            if self._count >= self._expected:
                self.mark = self.device.stamp()
        if self.on_gradient is not None:
            self.on_gradient()


def _hook_on(parameter: torch.Tensor) -> Any:
    """Where hooks on its gradient are registered; before torch 2.1 they run just before it is added."""
    return getattr(parameter, "register_post_accumulate_grad_hook", parameter.register_hook)


def behind_backward(callback: Callable[[], None]) -> None:
    """Have the autograd engine call it when the backward pass that runs is over."""
    # No failure may reach the user's backward pass; without the callback no reduction is seen.
    with contextlib.suppress(Exception):
        torch.autograd.Variable._execution_engine.queue_callback(callback)
