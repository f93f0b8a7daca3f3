"""Let ranks search for garbage and for reductions rarely: Python runs this file when it starts.

A framework is hundreds of thousands of objects that stay. Searching them, during the import and when the
process ends, is two fifths of the CPU time of a process that only imports TensorFlow, and a third for
PyTorch. Horovod's thread wakes every millisecond by default, and Gloo's keeps a core busy until other
ranks have answered: an eighth of the CPU time of keras_cases.py. The scripts of docs/recorders/ and
docs/tutorial.md run without this file, as users start them.
"""

import atexit
import gc
import os

gc.set_threshold(100_000)
# What is registered later runs earlier: recorders and frameworks have ended before.
atexit.register(gc.freeze)
# For Horovod's library alone: in os.environ the recorder would find a setting of the user.
if "HOROVOD_RANK" in os.environ and "HOROVOD_CYCLE_TIME" not in os.environ:
    os.putenv("HOROVOD_CYCLE_TIME", "5")
