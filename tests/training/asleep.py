"""Let ranks of Horovod's PyTorch sleep while they wait, instead of polling on a core for others.

Horovod reduces the same tensors at the same times.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Iterator

_PAUSE_SECONDS = 0.001


def wait_asleep() -> None:
    """Change how this process waits for reductions."""
    from horovod.torch import mpi_ops

    library = mpi_ops.mpi_lib
    poll, wait_polling = library.horovod_torch_poll, library.horovod_torch_wait_and_clear

    def wait(handle: Any) -> Any:
        while not poll(handle):
            time.sleep(_PAUSE_SECONDS)
        return wait_polling(handle)

    # The recorder reads stacks: this frame is Horovod's, not the user's.
    wait.__code__ = wait.__code__.replace(co_filename=mpi_ops.__file__)
    wait.polling = wait_polling  # type: ignore[attr-defined]
    library.horovod_torch_wait_and_clear = wait


@contextlib.contextmanager
def polling() -> Iterator[None]:
    """Wait as Horovod does, for the duration of the block."""
    from horovod.torch import mpi_ops

    wait = mpi_ops.mpi_lib.horovod_torch_wait_and_clear
    mpi_ops.mpi_lib.horovod_torch_wait_and_clear = wait.polling
    try:
        yield
    finally:
        mpi_ops.mpi_lib.horovod_torch_wait_and_clear = wait
