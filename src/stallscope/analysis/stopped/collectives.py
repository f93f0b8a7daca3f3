"""Recognise the collective in which a rank waits by its stack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stallscope.collector.recorder.hangs.stacks import Frame, is_users

_LIBRARIES = re.compile(r"-packages/(?:horovod|torch/distributed)/")
_NAMES = re.compile(
    r"(?:grouped_|sparse_)?(?:all_?reduce|all_?gather|broadcast|reduce_?scatter|all_?to_?all)"
    r"(?:_\w*)?|(?:monitored_)?barrier|join|reduce|gather|scatter|send|recv|synchronize"
)
# Horovod's reduction of a step's gradients: PyTorch's optimizer, and functions for other frameworks.
_OPTIMIZER = "-packages/horovod/torch/optimizer.py"
_OF_GRADIENTS = ("allreduce_grads", "aggregate_gradients", "gradient")

#: A file with a line, or the name of a function of the library.
Place = tuple[str, int] | str
#: The place of the reduction of a step's gradients.
OF_STEP: Place = "step"


@dataclass(frozen=True)
class Collective:
    """A collective in which a thread waits."""

    #: The library's function.
    name: str
    #: The user's line that leads to it; None if no frame is the user's.
    caller: Frame | None
    #: Whether it is the reduction of the step's gradients.
    of_step: bool

    @property
    def place(self) -> Place:
        """Return the place, which is the same on all ranks that wait in one collective."""
        if self.of_step:
            return OF_STEP
        return self.name if self.caller is None else self.caller[:2]


def collective_of(stack: Sequence[Frame]) -> Collective | None:
    """Find the collective that a thread has called and that has not returned yet.

    Args:
        stack: the thread's frames, the innermost first.
    """
    at_users = next((at for at, frame in enumerate(stack) if is_users(frame)), len(stack))
    called = [frame for frame in stack[:at_users] if _is_collective(frame)]
    if not called:
        return None
    caller = stack[at_users] if at_users < len(stack) else None
    of_step = any(map(_reduces_gradients, stack[:at_users]))
    return Collective(called[-1][2].strip("_"), caller, of_step)


def _is_collective(frame: Frame) -> bool:
    path, _, name = frame
    return bool(_LIBRARIES.search(_slashes(path)) and _NAMES.fullmatch(name.strip("_")))


def _reduces_gradients(frame: Frame) -> bool:
    path = _slashes(frame[0])
    return bool(_LIBRARIES.search(path)) and (
        path.endswith(_OPTIMIZER) or frame[2].strip("_") in _OF_GRADIENTS
    )


def _slashes(path: str) -> str:
    return path.replace("\\", "/")
