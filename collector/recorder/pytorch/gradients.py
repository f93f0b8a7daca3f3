"""When gradients are there: a hook on every parameter that notes the time, the last one counts.

It runs when the parameter's gradient is complete, in front of the hook with which Horovod or
DistributedDataParallel starts to reduce it, so that communication still overlaps backward. Unused
parameters, several backward passes and reentrant checkpoints need no care: whatever came last was
last. ``torch.autograd.graph.register_multi_grad_hook`` would fire once instead, but costs ten times as
much and keeps all gradients until then, which makes autograd copy each of them.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, Callable, Iterable, List, Optional

import torch


class GradientClock:
    """``last`` is when the last gradient was there, since somebody set it to None.

    ``on_gradient`` is called with every gradient while it is set.
    """

    __slots__ = ("_handles", "_hooked", "last", "on_gradient")

    def __init__(self) -> None:
        self.last: Optional[int] = None
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

    def _gradient_is_there(self, _: torch.Tensor) -> None:
        self.last = monotonic_ns()
        if self.on_gradient is not None:
            self.on_gradient()


def _hook_on(parameter: torch.Tensor) -> Any:
    """Where hooks on its gradient are registered; before torch 2.1 they run just before it is added."""
    return getattr(parameter, "register_post_accumulate_grad_hook", parameter.register_hook)
