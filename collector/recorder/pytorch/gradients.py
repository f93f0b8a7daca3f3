"""When gradients are there: a hook on a parameter notes the time, the last one counts.

It runs when the parameter's gradient is complete, before the hook with which Horovod or
DistributedDataParallel starts to reduce it, so that communication still overlaps backward.
``torch.autograd.graph.register_multi_grad_hook`` would fire once instead, but costs ten times as much
and keeps all gradients until then, which makes autograd copy each of them.

A hook costs microseconds, and models have hundreds of parameters. So hooks are put on all of them, to
see whose gradient comes last; where that is the same in pass after pass, it alone keeps its hook.
Whether others have come after it shows at the end of the backward pass, and to be told of that costs as
much as the hook: of a few passes one is looked at. Where its end is later than usual, or the expected
gradient never came, all have their hooks again, and are looked at anew; and so they are every few
thousand passes, in case several passes of one step have come to differ. A change of order costs a few
steps the truth: there the gradient that used to be the last counts, or none. A model of which now these,
now those parts train keeps all hooks.

On a CUDA device the hooks run before the work is done. There the last one takes a timestamp of the
stream that the gradient comes on. Which one is the last is known when as many have come as in the
backward pass before; where fewer come, the pass's end has to do, which is later by what the host
does meanwhile.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, Callable, Dict, Iterable, List, Optional

import torch

from .cuda import CudaClock

# Passes in which the same gradient comes last, until only that one is watched.
_ALIKE = 8
# One of so many passes is looked at then. Odd: training often does something else every other step.
_LOOKED_AT = 7
# After so many passes all gradients are watched again.
_ANEW = 4096
# How often it may have been another one after all, until all are watched for good.
_MOST_SURPRISES = 2
# From its last gradient to its end a pass may take so many times what is usual; less than so many
# nanoseconds are no loss.
_LONGER = 4
_LEAST_NS = 200_000
# Where it usually takes longer than that, as on busy cores, another gradient could come unseen after
# the last one: then all are watched.
_MOST_USUAL_NS = 250_000


class GradientClock:
    """``last`` is when the last gradient was there, since it was set to None.

    ``on_gradient`` is called with every gradient while it is set. With a ``device``, ``mark`` is its
    timestamp of the same.
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
        "_quiet",
        "_surprises",
        "_tails_ns",
        "_thinned",
        "_watched",
        "_watches",
        "device",
        "last",
        "mark",
        "on_gradient",
        "watches_all",
    )

    def __init__(self, device: Optional[CudaClock] = None) -> None:
        self.device = device
        self.last: Optional[int] = None
        self.mark: Any = None
        self.on_gradient: Optional[Callable[[], None]] = None
        #: Whether every gradient is watched, however much alike backward passes are.
        self.watches_all = device is not None or not _TELLS_WHOSE
        self._watches = False
        # Gradients of the backward pass that runs, and of the one before.
        self._count = self._expected = 0
        # By their ids: parameters that train, and the handles of those that have a hook.
        self._all: Dict[int, torch.Tensor] = {}
        self._handles: Dict[int, Any] = {}
        # Whose gradient was the last one up to now, and whose it was in the passes before that have
        # been alike; their times from the last gradient to the end.
        self._latest: Optional[torch.Tensor] = None
        self._watched: Optional[torch.Tensor] = None
        self._tails_ns: List[int] = []
        # The one that alone has kept its hook, whether that is so now, and for how many passes.
        self._kept: Optional[torch.Tensor] = None
        self._thinned = False
        self._passes = self._longest_ns = self._surprises = 0
        # So many gradients more are those of passes that are not looked at.
        self._quiet = 0

    def hook(self, parameters: Iterable[torch.Tensor]) -> None:
        """Put hooks on those that train: layers get unfrozen between epochs."""
        self._all = {id(one): one for one in parameters if one.requires_grad}
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

    def stamp(self) -> Any:
        """The device's timestamp of now; None without a device."""
        return None if self.device is None else self.device.stamp()

    def forget(self) -> None:
        """A new turn begins: gradients of the last one say nothing about it."""
        if self.last is None and self._thinned:
            # There may have been some that were not reported.
            self._is_surprised()
        self.last = self.mark = None
        self._count = 0
        if self._watches and self.on_gradient is None:
            # A backward pass that failed had no end.
            self.on_gradient = self._backward_runs

    def watch_backwards(self) -> None:
        """See where backward passes end, if nothing else does."""
        self._watches = True
        self.on_gradient = self._backward_runs

    def backward_is_over(self) -> None:
        """To be called after the last gradient of a pass, and before anything waits for others."""
        if self.device is not None:
            if self._count < self._expected:
                self.mark = self.stamp()
            self._expected, self._count = self._count, 0
        elif not self.watches_all:
            # Whatever fails in here may not reach the backward pass.
            try:
                self._learn(monotonic_ns())
            except Exception:
                self.watches_all = True

    def _learn(self, now: int) -> None:
        behind_ns = now - (self.last or now)
        if self._thinned:
            # Another gradient has come after it, or, far more often, the machine was busy.
            if behind_ns > self._longest_ns or self._passes >= _ANEW:
                self._watch_all()
            else:
                self._leave_some_alone()
            return
        if self._latest is not self._watched:
            self._watched = self._latest
            self._tails_ns.clear()
        self._tails_ns.append(behind_ns)
        if len(self._tails_ns) >= _ALIKE:
            usual_ns = sorted(self._tails_ns)[_ALIKE // 2]
            self._tails_ns.clear()
            if usual_ns <= _MOST_USUAL_NS:
                self._longest_ns = max(_LONGER * usual_ns, _LEAST_NS)
                self._watch_one()

    def _leave_some_alone(self) -> None:
        """Look at a later pass again, unless another listener needs every one."""
        self._quiet = _LOOKED_AT - 1 if self._watches else 0
        self._passes += 1 + self._quiet

    def _is_surprised(self) -> None:
        self._surprises += 1
        self.watches_all = self.watches_all or self._surprises >= _MOST_SURPRISES
        self._watch_all()

    def _watch_all(self) -> None:
        for key, parameter in self._all.items():
            # It may have been frozen since.
            if key not in self._handles and parameter.requires_grad:
                self._handles[key] = _hook_on(parameter)(self._gradient_is_there)
        self._tails_ns.clear()
        self._thinned = False
        self._quiet = 0

    def _watch_one(self) -> None:
        """Take the hooks from all but the last."""
        if self._kept is not None and self._kept is not self._watched:
            self._surprises += 1
            if self._surprises >= _MOST_SURPRISES:
                self.watches_all = True
                return
        self._kept, self._thinned, self._passes = self._watched, True, 0
        for key in [key for key in self._handles if key != id(self._kept)]:
            self._handles.pop(key).remove()
        self._leave_some_alone()

    def _backward_runs(self) -> None:
        self.on_gradient = None
        behind_backward(self._end_of_backward)

    def _end_of_backward(self) -> None:
        self.backward_is_over()
        self.on_gradient = self._backward_runs

    def _gradient_is_there(self, parameter: torch.Tensor) -> None:
        self.last = monotonic_ns()
        if self._quiet:
            self._quiet -= 1
            return
        if not self.watches_all:
            # Otherwise it may be the gradient itself, of which autograd makes a copy while it is kept.
            self._latest = parameter
        if self.device is not None:
            self._count += 1
            if self._count >= self._expected:
                self.mark = self.device.stamp()
        if self.on_gradient is not None:
            self.on_gradient()


# Where torch keeps it; to get there takes a step as long as to call it.
_ENGINE: Any = getattr(torch.autograd.Variable, "_execution_engine", None)

# Before torch 2.1 hooks run just before the gradient is added, and are told that instead of whose it is.
_TELLS_WHOSE = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


def _hook_on(parameter: torch.Tensor) -> Any:
    """Where hooks on its gradient are registered."""
    return getattr(parameter, "register_post_accumulate_grad_hook", parameter.register_hook)


def behind_backward(callback: Callable[[], None]) -> None:
    """Have the autograd engine call it when the backward pass that runs is over."""
    # No failure may reach the user's backward pass; without the callback no reduction is seen. A context
    # manager would take as long to make as all the rest.
    try:  # noqa: SIM105
        _ENGINE.queue_callback(callback)
    except Exception:
        pass
