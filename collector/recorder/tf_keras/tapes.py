"""Horovod's gradient tapes, which reduce what they compute, in train steps of a user's own."""

from __future__ import annotations

import sys
import threading
from typing import Any, Callable


class TapesOfStep:
    """While it is entered, what tapes of this thread reduce with is wrapped.

    A train step makes its tapes anew whenever it is traced, out of a class of Horovod's that nothing
    else
    sees: there is no instance to put anything on, so it is put on the class for as long as that takes.

    Args:
        wrap: given a tape's function that reduces gradients, gives the one to use instead.
    """

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        self._wrap = wrap
        self._tapes: Any = None
        self._original: Any = None
        self._replaced: Any = None

    def __enter__(self) -> None:
        # Not public: where it is missing, tapes reduce unseen.
        self._tapes = getattr(
            sys.modules.get("horovod.tensorflow"), "_DistributedGradientTape", None
        )
        if self._tapes is None:
            return
        thread, original, wrap = threading.get_ident(), self._tapes.__init__, self._wrap

        def made(tape: Any, *args: Any, **kwargs: Any) -> None:
            original(tape, *args, **kwargs)
            reduces = getattr(tape, "_allreduce_grads", None)
            if reduces is not None and threading.get_ident() == thread:
                tape._allreduce_grads = wrap(reduces)

        self._original, self._replaced = original, made
        self._tapes.__init__ = made

    def __exit__(self, *_error: Any) -> None:
        # Something else was put there meanwhile: leave it.
        if self._tapes is not None and self._tapes.__init__ is self._replaced:
            self._tapes.__init__ = self._original
