"""Time the last gradient of each backward pass with hooks on parameters.

A hook runs when the parameter's gradient is complete. That is before the hook with which Horovod or
DistributedDataParallel starts to reduce it, so that communication still overlaps backward.
``torch.autograd.graph.register_multi_grad_hook`` would fire only once, but costs ten times as much. It
also keeps all gradients until then, which makes autograd copy each of them.

A hook costs microseconds, and models have hundreds of parameters. So all parameters get hooks first, to
find the gradient that comes last. If it is the same in several passes, only that parameter keeps its
hook. The end of the backward pass shows whether other gradients came after it. That callback costs as
much as the hook, so it runs only in one of several passes. If the end is later than usual, or the
expected gradient never came, all parameters get hooks again; they also do every few thousand passes, in
case the passes of one step now differ. A change of order makes a few steps wrong: they show the gradient
that used to be last, or none. A model that trains different parts in turn keeps all hooks.

CUDA runs asynchronously, so hooks run before the work is done. The last hook then takes a timestamp of
the gradient's stream. While all parameters have hooks, the last one is known when as many gradients have
come as in the previous backward pass. Where fewer come, the end of the pass counts, which is later by
the host's work in between.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, Callable, Dict, Iterable, List, Optional

import torch

from .cuda import CudaClock

# Passes with the same last gradient before only that one is watched.
_ALIKE = 8
# Then the end of one in this many passes is checked. Odd: training often alternates between steps.
_LOOKED_AT = 7
# After this many passes all gradients are watched again.
_ANEW = 4096
# How often the last gradient may change before all are watched for good.
_MOST_SURPRISES = 2
# The time from the last gradient to the end of a pass may be this many times the usual one, and always
# this many nanoseconds.
_LONGER = 4
_LEAST_NS = 200_000
# Where it is usually longer than this, as on busy cores, another gradient could follow the last one
# unseen: then all are watched.
_MOST_USUAL_NS = 250_000


class GradientClock:
    """Times gradients: ``last`` is the time of the last one since it was set to None.

    ``on_gradient`` is called with every gradient while it is set. With a ``device``, ``device_last`` is
    the device's timestamp of the last gradient.
    """

    __slots__ = (
        "_all",
        "_count",
        "_expected",
        "_handles",
        "_kept",
        "_latest",
        "_longest_ns",
        "_passes",
        "_skipped",
        "_surprises",
        "_tails_ns",
        "_watched",
        "_watches",
        "_watches_one",
        "device",
        "device_last",
        "last",
        "on_gradient",
        "watches_all",
    )

    def __init__(self, device: Optional[CudaClock] = None) -> None:
        self.device = device
        self.last: Optional[int] = None
        self.device_last: Any = None
        self.on_gradient: Optional[Callable[[], None]] = None
        #: Whether every gradient is watched, even if all backward passes are alike.
        self.watches_all = not _HOOKS_GET_PARAMETER
        self._watches = False
        # Gradients of the current backward pass, and of the previous one.
        self._count = self._expected = 0
        # By id: parameters that train, and the handles of parameters with a hook.
        self._all: Dict[int, torch.Tensor] = {}
        self._handles: Dict[int, Any] = {}
        # The parameter of the latest gradient, and the parameter of the last gradient in the latest
        # passes that were alike; their times from the last gradient to the end.
        self._latest: Optional[torch.Tensor] = None
        self._watched: Optional[torch.Tensor] = None
        self._tails_ns: List[int] = []
        # The only parameter with a hook, whether that holds now, and for how many passes.
        self._kept: Optional[torch.Tensor] = None
        self._watches_one = False
        self._passes = self._longest_ns = self._surprises = 0
        # The next gradients to ignore: those of passes that are not checked.
        self._skipped = 0

    @property
    def is_complete(self) -> bool:
        """Return whether ``last`` is the last gradient of its pass, and not one before it."""
        if self._watches_one:
            return True
        if self.device is not None:
            return self._count >= self._expected > 0
        return self._latest is not None and self._latest is self._watched

    def hook(self, parameters: Iterable[torch.Tensor]) -> None:
        """Put hooks on parameters that train: layers may be unfrozen between epochs."""
        self._all = {
            id(parameter): parameter for parameter in parameters if parameter.requires_grad
        }
        for key in [key for key in self._handles if key not in self._all]:
            self._handles.pop(key).remove()
        self._kept = None
        self._watch_all()

    def remove(self) -> None:
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
        self._all.clear()
        self._latest = self._watched = self._kept = None

    def timestamp(self) -> Any:
        """Take the device's timestamp of now; None without a device."""
        return None if self.device is None else self.device.timestamp()

    def forget(self) -> None:
        """Start another iteration: gradients of the previous one do not belong to it."""
        if self.last is None and self._watches_one:
            # Other gradients may have come without a hook.
            self._count_surprise()
        self.last = self.device_last = None
        self._count = 0
        if self._watches and self.on_gradient is None:
            # A backward pass that failed had no end.
            self.on_gradient = self._first_gradient

    def watch_backwards(self) -> None:
        """Watch the ends of backward passes, if nothing else does."""
        self._watches = True
        self.on_gradient = self._first_gradient

    def end_backward(self) -> None:
        """End a pass; called after its last gradient and before anything waits for other ranks."""
        if self.device is not None and not self._watches_one:
            if self._count < self._expected:
                self.device_last = self.timestamp()
            self._expected, self._count = self._count, 0
        if not self.watches_all:
            # No error may reach the backward pass.
            try:
                self._learn(monotonic_ns())
            except Exception:
                self.watches_all = True

    def _learn(self, now: int) -> None:
        tail_ns = now - (self.last or now)
        if self._watches_one:
            # Another gradient came after it or, far more often, the machine was busy.
            if tail_ns > self._longest_ns or self._passes >= _ANEW:
                self._watch_all()
            else:
                self._skip_passes()
            return
        if self._latest is not self._watched:
            self._watched = self._latest
            self._tails_ns.clear()
        self._tails_ns.append(tail_ns)
        if len(self._tails_ns) >= _ALIKE:
            usual_ns = sorted(self._tails_ns)[_ALIKE // 2]
            self._tails_ns.clear()
            if usual_ns <= _MOST_USUAL_NS:
                self._longest_ns = max(_LONGER * usual_ns, _LEAST_NS)
                self._watch_one()

    def _skip_passes(self) -> None:
        """Skip some passes before the next check, unless another listener needs every pass."""
        self._skipped = _LOOKED_AT - 1 if self._watches else 0
        self._passes += 1 + self._skipped

    def _count_surprise(self) -> None:
        self._surprises += 1
        self.watches_all = self.watches_all or self._surprises >= _MOST_SURPRISES
        self._watch_all()

    def _watch_all(self) -> None:
        for key, parameter in self._all.items():
            # It may have been frozen since.
            if key not in self._handles and parameter.requires_grad:
                self._handles[key] = _hook_on(parameter)(self._gradient_arrived)
        self._tails_ns.clear()
        self._watches_one = False
        self._skipped = self._count = 0

    def _watch_one(self) -> None:
        """Remove all hooks but the last gradient's."""
        if self._kept is not None and self._kept is not self._watched:
            self._surprises += 1
            if self._surprises >= _MOST_SURPRISES:
                self.watches_all = True
                return
        self._kept, self._watches_one, self._passes = self._watched, True, 0
        for key in [key for key in self._handles if key != id(self._kept)]:
            self._handles.pop(key).remove()
        self._skip_passes()

    def _first_gradient(self) -> None:
        self.on_gradient = None
        after_backward(self._end_of_backward)

    def _end_of_backward(self) -> None:
        self.end_backward()
        self.on_gradient = self._first_gradient

    def _gradient_arrived(self, parameter: torch.Tensor) -> None:
        self.last = monotonic_ns()
        if self.device is not None:
            self._count += 1
            if self._watches_one or self._count >= self._expected:
                self.device_last = self.device.timestamp()
        if self._skipped:
            self._skipped -= 1
            return
        if not self.watches_all:
            # Otherwise it may be the gradient itself, which autograd would copy if it were kept.
            self._latest = parameter
        if self.on_gradient is not None:
            self.on_gradient()


# torch's autograd engine: looking it up takes as long as calling it.
_ENGINE: Any = getattr(torch.autograd.Variable, "_execution_engine", None)

# Before torch 2.1 hooks run just before the gradient is added, and get the gradient, not the parameter.
_HOOKS_GET_PARAMETER = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


def _hook_on(parameter: torch.Tensor) -> Any:
    """Return the method that registers a hook for its gradient."""
    return getattr(parameter, "register_post_accumulate_grad_hook", parameter.register_hook)


def after_backward(callback: Callable[[], None]) -> None:
    """Let the autograd engine call a function at the end of the current backward pass."""
    # No error may reach the user's backward pass; without the callback no reduction is seen. A context
    # manager would take as long as everything else.
    try:  # noqa: SIM105
        _ENGINE.queue_callback(callback)
    except Exception:
        pass
