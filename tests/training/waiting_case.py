"""Print how much CPU time rank 0's thread uses while it waits for rank 1 in an allreduce.

waiting_case.py torch|tensorflow
"""

from __future__ import annotations

import sys
import time

#: How long rank 0 waits for rank 1 in a reduction.
WAITING_SECONDS = 2.0


def main() -> None:
    if sys.argv[1] == "torch":
        import horovod.torch as hvd
        import torch

        hvd.init()
        ones = torch.ones(1000)

        def reduce() -> None:
            hvd.allreduce(ones, name="ones")
    else:
        import horovod.tensorflow as hvd
        import tensorflow as tf

        hvd.init()
        ones = tf.ones(1000)
        reduced = tf.function(lambda: hvd.allreduce(ones, name="ones"))

        def reduce() -> None:
            reduced().numpy()

    # Connecting and tracing are over after the first one.
    reduce()
    if hvd.rank() == 1:
        time.sleep(WAITING_SECONDS)
    began = time.thread_time()
    reduce()
    if hvd.rank() == 0:
        print(f"CPU seconds: {time.thread_time() - began:.3f}")


if __name__ == "__main__":
    main()
