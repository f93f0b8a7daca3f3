"""Time Horovod's gradient tapes, which reduce gradients in custom train steps."""

from __future__ import annotations

import sys
import threading
from typing import Any, Callable, Optional

from ..patching import patch


class TapesOfStep:
    """A context in which the tapes of this thread get a wrapped reduction.

    A train step makes its tapes whenever it is traced, from a class of Horovod that is not public. There
    is no instance to patch, so the class is patched during the trace.

    Args:
        wrap: takes a tape's function that reduces gradients and returns its replacement.
    """

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        self._wrap = wrap
        self._restore: Optional[Callable[[], None]] = None

    def __enter__(self) -> None:
        # Not public: where it is missing, reductions by tapes are not seen.
        tapes = getattr(sys.modules.get("horovod.tensorflow"), "_DistributedGradientTape", None)
        if tapes is None:
            return
        thread, original, wrap = threading.get_ident(), tapes.__init__, self._wrap

        def made(tape: Any, *args: Any, **kwargs: Any) -> None:
            original(tape, *args, **kwargs)
            reduces = getattr(tape, "_allreduce_grads", None)
            if reduces is not None and threading.get_ident() == thread:
                tape._allreduce_grads = wrap(reduces)

        self._restore = patch(tapes, "__init__", made)

    def __exit__(self, *_error: Any) -> None:
        if self._restore is not None:
            self._restore()
