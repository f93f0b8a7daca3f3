"""Record a training that the Trainer of another library runs, with PyTorch's recording."""

from __future__ import annotations

import functools
from time import monotonic_ns
from typing import Any, Dict

from ..guards import never_raises
from ..patching import patch
from .recording import Recording


class TrainerRecording(Recording):
    """A Trainer's training, recorded like a loop over batches."""

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = ()

    @never_raises
    def begin(self) -> None:
        """Open the log, and watch the Trainer."""
        self.start()
        if not self.running:
            return
        self._watch_trainer()
        session, steps = self._session, self._steps_before()
        assert session is not None
        session.facts(self._trainer_facts())
        if steps > session.next_step:
            # Training continues from a checkpoint, and the optimizer keeps no count.
            session.renumber(steps)

    def _watch_trainer(self) -> None:
        """Patch the Trainer to see batches, validation and checkpoints."""
        raise NotImplementedError

    def _trainer_facts(self) -> Dict[str, Any]:
        """Return the Trainer's facts that PyTorch's recording does not find."""
        raise NotImplementedError

    def _steps_before(self) -> int:
        """Return the steps that the Trainer counted before this training."""
        raise NotImplementedError

    def _time_pauses(self, trainer: Any, name: str, kind: str) -> None:
        """Record calls of one of the Trainer's methods as intervals."""
        original = getattr(trainer, name)

        @functools.wraps(original)
        def paused(*args: Any, **kwargs: Any) -> Any:
            self.begin_pause(kind)
            began = monotonic_ns()
            try:
                return original(*args, **kwargs)
            finally:
                self.end_pause(kind, began)

        self._undo.append(patch(trainer, name, paused))
